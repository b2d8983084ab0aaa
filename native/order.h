// A shuffled order of any number of samples, of which any place can be asked for alone.
//
// Orders are a promise: the same count, seed and epoch give the same one in every version.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "philox.h"

namespace slip {

// A bijection of [0, count) made of arithmetic alone, for counts to 2^62: an alternating Feistel
// network on the bits of count - 1. A number that it throws outside is thrown again until it falls
// inside, less than twice on average.
class Feistel {
  public:
    Feistel(std::uint64_t count, PhiloxKey key);

    void map(const std::int64_t* positions, std::size_t size, std::int64_t* out) const;

  private:
    static constexpr int kRounds = 12, kGroup = 8;

    void throw_group(std::uint64_t (&values)[kGroup]) const;

    std::uint64_t count_;
    int low_bits_, high_bits_;
    std::array<PhiloxKey, kRounds> keys_;
};

// Count is at most kMostOrdered.
class Order {
  public:
    static constexpr std::int64_t kMostOrdered = std::int64_t{1} << 62;
    // Up to here a table costs less than the network and holds every permutation alike.
    static constexpr std::int64_t kLargestTable = 65536;

    Order(std::int64_t count, std::uint64_t seed, std::uint64_t epoch);

    std::int64_t count() const { return count_; }

    // out[i] is the sample at place positions[i], which must be in [0, count).
    void at(const std::int64_t* positions, std::size_t size, std::int64_t* out) const;

  private:
    std::int64_t count_;
    std::vector<std::uint16_t> table_;  // empty: the network is asked
    Feistel network_;
};

}  // namespace slip
