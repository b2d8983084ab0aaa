#include "checksum.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define SLIP_CRC_TARGET __attribute__((target("sse4.2")))
#elif defined(__aarch64__)
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__clang__)
#define SLIP_CRC_TARGET __attribute__((target("crc")))
#else
#define SLIP_CRC_TARGET __attribute__((target("+crc")))
#endif
#endif

namespace slip {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78u;  // reflected 0x1EDC6F41

// Three independent lanes hide the latency of the CRC instruction; a lane's length is fixed so that
// "append this many zero bytes" is one table per lane.
constexpr std::size_t kLane = 2048;

using ByteTable = std::array<std::uint32_t, 256>;
using ShiftTable = std::array<ByteTable, 4>;

constexpr ByteTable make_byte_table() {
    ByteTable table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
        table[i] = crc;
    }
    return table;
}

constexpr ByteTable kBytes = make_byte_table();

std::uint32_t append_zeros(std::uint32_t crc, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) crc = (crc >> 8) ^ kBytes[crc & 0xFF];
    return crc;
}

ShiftTable make_shift_table(std::size_t zeros) {
    std::array<std::uint32_t, 32> of_bit{};
    for (int bit = 0; bit < 32; ++bit) of_bit[bit] = append_zeros(1u << bit, zeros);
    ShiftTable table{};
    for (int byte = 0; byte < 4; ++byte) {
        for (std::uint32_t value = 0; value < 256; ++value) {
            std::uint32_t crc = 0;
            for (int bit = 0; bit < 8; ++bit) {
                if (value >> bit & 1) crc ^= of_bit[8 * byte + bit];
            }
            table[byte][value] = crc;
        }
    }
    return table;
}

std::uint32_t shift(const ShiftTable& table, std::uint32_t crc) {
    return table[0][crc & 0xFF] ^ table[1][crc >> 8 & 0xFF] ^ table[2][crc >> 16 & 0xFF] ^
           table[3][crc >> 24];
}

std::uint32_t crc_bytes(const std::uint8_t* data, std::size_t size, std::uint32_t crc) {
    for (std::size_t i = 0; i < size; ++i) crc = (crc >> 8) ^ kBytes[(crc ^ data[i]) & 0xFF];
    return crc;
}

#if defined(SLIP_CRC_TARGET)

SLIP_CRC_TARGET inline std::uint32_t step(std::uint32_t crc, const std::uint8_t* data) {
    std::uint64_t word;
    std::memcpy(&word, data, 8);
#if defined(__x86_64__)
    return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
#elif defined(__clang__)
    return __builtin_arm_crc32cd(crc,
                                 word);  // its <arm_acle.h> wants the whole file compiled for it
#else
    return __crc32cd(crc, word);
#endif
}

SLIP_CRC_TARGET std::uint32_t crc_hardware(const std::uint8_t* data, std::size_t size,
                                           std::uint32_t crc) {
    static const ShiftTable one_lane = make_shift_table(kLane);
    while (size >= 3 * kLane) {
        std::uint32_t middle = 0, last = 0;
        for (std::size_t i = 0; i < kLane; i += 8) {
            crc = step(crc, data + i);
            middle = step(middle, data + kLane + i);
            last = step(last, data + 2 * kLane + i);
        }
        crc = shift(one_lane, shift(one_lane, crc) ^ middle) ^ last;
        data += 3 * kLane;
        size -= 3 * kLane;
    }
    while (size >= 8) {
        crc = step(crc, data);
        data += 8;
        size -= 8;
    }
    return crc_bytes(data, size, crc);
}

bool has_crc_instruction() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2");
#elif defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_CRC32;
#else
    return true;  // every Apple arm64 processor has it
#endif
}

#endif

}  // namespace

std::uint32_t crc32c(const std::uint8_t* data, std::size_t size, std::uint32_t seed) {
    const std::uint32_t crc = ~seed;
#if defined(SLIP_CRC_TARGET)
    static const bool hardware = has_crc_instruction();
    if (hardware) return ~crc_hardware(data, size, crc);
#endif
    return ~crc_bytes(data, size, crc);
}

}  // namespace slip
