#include "gather.h"

#include <algorithm>
#include <cstring>

#include "checksum.h"

namespace slip {

Status copy_payload(const std::uint8_t* from, std::size_t size, const std::uint32_t* checksum,
                    std::uint8_t* to) {
    if (size == 0) return !checksum || *checksum == 0 ? Status::ok : Status::checksum;
    if (!checksum) {
        std::memcpy(to, from, size);
        return Status::ok;
    }
    constexpr std::size_t kPortion = 24 * 1024;  // copied while it is in the first cache
    std::uint32_t sum = 0;
    for (std::size_t done = 0; done < size; done += kPortion) {
        const std::size_t portion = std::min(kPortion, size - done);
        sum = crc32c(from + done, portion, sum);
        std::memcpy(to + done, from + done, portion);
    }
    if (sum == *checksum) return Status::ok;
    std::memset(to, 0, size);
    return Status::checksum;
}

}  // namespace slip
