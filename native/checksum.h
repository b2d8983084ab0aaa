// CRC-32C of byte ranges, with the CPU's own instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slip {

// Continues `seed` (0 starts anew): crc32c(ab) == crc32c(b, n, crc32c(a, m)).
std::uint32_t crc32c(const std::uint8_t* data, std::size_t size, std::uint32_t seed = 0);

}  // namespace slip
