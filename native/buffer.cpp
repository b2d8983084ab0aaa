#include "buffer.h"

#include <cstdlib>

namespace slip {

Buffer::~Buffer() { std::free(data_); }

bool Buffer::grow(std::size_t size) {
    const std::size_t wanted = ((size + size / 4 + 64) / 64 + 1) * 64;
    void* fresh = std::aligned_alloc(64, wanted);
    if (!fresh) return false;
    std::free(data_);
    data_ = static_cast<std::uint8_t*>(fresh);
    size_ = wanted - 64;
    return true;
}

}  // namespace slip
