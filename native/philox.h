// Random numbers that are a function of what they are for, not of what was drawn before:
// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
//
// The numbers are a promise: no version of Slipstream may change them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace slip {

using PhiloxKey = std::array<std::uint32_t, 2>;
using PhiloxBlock = std::array<std::uint32_t, 4>;

inline PhiloxBlock philox(PhiloxBlock counter, PhiloxKey key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t even = std::uint64_t{0xD2511F53u} * counter[0];
        const std::uint64_t odd = std::uint64_t{0xCD9E8D57u} * counter[2];
        counter = {static_cast<std::uint32_t>(odd >> 32) ^ counter[1] ^ key[0],
                   static_cast<std::uint32_t>(odd),
                   static_cast<std::uint32_t>(even >> 32) ^ counter[3] ^ key[1],
                   static_cast<std::uint32_t>(even)};
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

// Numbers for one purpose share nothing with those for another.
enum class Purpose : std::uint32_t { samples = 1, order = 2 };

// Two (seed, epoch) have the same key with a chance of 2^-64.
inline PhiloxKey philox_key(std::uint64_t seed, std::uint64_t epoch, Purpose purpose) {
    const PhiloxBlock mixed =
        philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32)},
               {static_cast<std::uint32_t>(purpose), 0});
    return {mixed[0], mixed[1]};
}

// The numbers of one operation on one sample: four per block. Every (sample, op, block) has a
// counter of its own.
inline void philox_sample(PhiloxKey key, std::int64_t sample, std::uint32_t op,
                          std::uint32_t blocks, std::uint32_t* out) {
    const auto bits = static_cast<std::uint64_t>(sample);
    for (std::uint32_t block = 0; block < blocks; ++block) {
        for (const std::uint32_t number :
             philox({static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32), op,
                     block},
                    key)) {
            *out++ = number;
        }
    }
}

}  // namespace slip
