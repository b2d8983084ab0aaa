#include "order.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace slip {
namespace {

// Numbers below a bound, all equally likely.
class Draws {
  public:
    explicit Draws(PhiloxKey key) : key_(key) {}

    // Lemire's method: the upper half of a product, drawn again where the lower half falls into the
    // part that would favour some numbers.
    std::uint32_t below(std::uint32_t bound) {
        std::uint64_t product = std::uint64_t{next()} * bound;
        if (static_cast<std::uint32_t>(product) < bound) {
            const std::uint32_t uneven = -bound % bound;
            while (static_cast<std::uint32_t>(product) < uneven)
                product = std::uint64_t{next()} * bound;
        }
        return static_cast<std::uint32_t>(product >> 32);
    }

  private:
    std::uint32_t next() {
        if (used_ == block_.size()) {
            block_ = philox({number_++, 0, 0, 0}, key_);
            used_ = 0;
        }
        return block_[used_++];
    }

    PhiloxKey key_;
    PhiloxBlock block_{};
    std::size_t used_ = 4;
    std::uint32_t number_ = 0;
};

std::vector<std::uint16_t> shuffled(std::uint32_t count, PhiloxKey key) {
    std::vector<std::uint16_t> table(count);
    for (std::uint32_t i = 0; i < count; ++i) table[i] = static_cast<std::uint16_t>(i);
    Draws draws(key);
    for (std::uint32_t left = count; left > 1; --left)
        std::swap(table[left - 1], table[draws.below(left)]);
    return table;
}

}  // namespace

Feistel::Feistel(std::uint64_t count, PhiloxKey key) : count_(count) {
    const int bits = std::max(2, static_cast<int>(std::bit_width(count - 1)));
    low_bits_ = bits / 2;
    high_bits_ = bits - low_bits_;
    for (int round = 0; round < kRounds; ++round) {
        const PhiloxBlock block = philox({static_cast<std::uint32_t>(round), 0, 0, 1}, key);
        keys_[round] = {block[0], block[1]};
    }
}

// Eight at a time: one would keep the processor waiting for its multiplications.
inline void Feistel::throw_group(std::uint64_t (&values)[kGroup]) const {
    // Two multiplications, each folded, so that every bit of the result hangs on every bit of the
    // half. 32 bits wide, which is what processors multiply fastest.
    const auto mix = [](std::uint32_t half, const PhiloxKey& key, int bits) {
        const std::uint64_t first = std::uint64_t{half ^ key[0]} * 0xD2511F53u;
        const auto folded = static_cast<std::uint32_t>(first ^ first >> 32);
        const std::uint64_t second = std::uint64_t{folded ^ key[1]} * 0xCD9E8D57u;
        return static_cast<std::uint32_t>(second ^ second >> 32) >> (32 - bits);
    };
    const int low_bits = low_bits_, high_bits = high_bits_;
    std::uint32_t low[kGroup], high[kGroup];
    for (int k = 0; k < kGroup; ++k) {
        low[k] = static_cast<std::uint32_t>(values[k] & ((std::uint64_t{1} << low_bits) - 1));
        high[k] = static_cast<std::uint32_t>(values[k] >> low_bits);
    }
    for (int round = 0; round < kRounds; round += 2) {
        const PhiloxKey even = keys_[round], odd = keys_[round + 1];
        for (int k = 0; k < kGroup; ++k) low[k] ^= mix(high[k], even, low_bits);
        for (int k = 0; k < kGroup; ++k) high[k] ^= mix(low[k], odd, high_bits);
    }
    for (int k = 0; k < kGroup; ++k) values[k] = std::uint64_t{high[k]} << low_bits | low[k];
}

void Feistel::map(const std::int64_t* positions, std::size_t size, std::int64_t* out) const {
    constexpr std::size_t kTogether = 256;
    for (std::size_t together; size > 0; positions += together, out += together, size -= together) {
        together = std::min(size, kTogether);
        // Where in `out` the numbers stand that have yet to fall inside. Some more than there are,
        // so that the last group is complete.
        std::uint32_t outside[kTogether + kGroup];
        for (std::size_t i = 0; i < together; ++i) {
            out[i] = positions[i];
            outside[i] = static_cast<std::uint32_t>(i);
        }
        for (std::size_t left = together; left > 0;) {
            std::fill_n(outside + left, kGroup, outside[left - 1]);
            std::size_t still = 0;
            for (std::size_t start = 0; start < left; start += kGroup) {
                std::uint64_t values[kGroup];
                for (int k = 0; k < kGroup; ++k)
                    values[k] = static_cast<std::uint64_t>(out[outside[start + k]]);
                throw_group(values);
                const std::size_t end = std::min<std::size_t>(kGroup, left - start);
                for (std::size_t k = 0; k < end; ++k) {
                    const std::uint32_t i = outside[start + k];
                    out[i] = static_cast<std::int64_t>(values[k]);
                    outside[still] = i;
                    still += values[k] >= count_;
                }
            }
            left = still;
        }
    }
}

Order::Order(std::int64_t count, std::uint64_t seed, std::uint64_t epoch)
    : count_(count),
      network_(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1)),
               philox_key(seed, epoch, Purpose::order)) {
    if (count <= kLargestTable)
        table_ =
            shuffled(static_cast<std::uint32_t>(count), philox_key(seed, epoch, Purpose::order));
}

void Order::at(const std::int64_t* positions, std::size_t size, std::int64_t* out) const {
    if (table_.empty()) return network_.map(positions, size, out);
    for (std::size_t i = 0; i < size; ++i) out[i] = table_[static_cast<std::size_t>(positions[i])];
}

}  // namespace slip
