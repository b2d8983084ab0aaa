// Compiled once per instruction set, as decode.cpp is.
#include "convert.h"

#include <cstring>
#include <utility>

#include "isa.h"
#include "kernels.h"

namespace slip {
namespace SLIP_ISA {

void separate_pixels(const std::uint8_t* pixels, std::size_t count, std::uint8_t* planes,
                     std::size_t plane) {
    separate(pixels, static_cast<int>(count), planes, planes + plane, planes + 2 * plane);
}

// What takes the time is the number of loads and stores: bytes are loaded by eights and entries
// stored in pairs, as the bits they are.
void look_up_pixels(const std::uint8_t* pixels, std::size_t count, const float* tables,
                    float* planes, std::size_t plane) {
    std::uint32_t entries[3][256];
    std::memcpy(entries, tables, sizeof entries);
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8, pixels += 24) {
        std::uint64_t bytes[3];
        std::memcpy(bytes, pixels, sizeof bytes);
        const auto put_pair = [&](int pair, int c) {
            const int a = 6 * pair + c, b = a + 3;
            const std::uint64_t low = entries[c][bytes[a / 8] >> a % 8 * 8 & 255],
                                high = entries[c][bytes[b / 8] >> b % 8 * 8 & 255],
                                both = low | high << 32;
            std::memcpy(planes + c * plane + i + 2 * pair, &both, sizeof both);
        };
        // Written out by the compiler, so that shifts and table are constants.
        [&]<int... k>(std::integer_sequence<int, k...>) {
            (put_pair(k / 3, k % 3), ...);
        }(std::make_integer_sequence<int, 12>{});
    }
    for (; i < count; ++i, pixels += 3) {
        for (int c = 0; c < 3; ++c) planes[c * plane + i] = tables[256 * c + pixels[c]];
    }
}

}  // namespace SLIP_ISA
}  // namespace slip
