// The same numbers on every machine.
#pragma once

#include <cstdint>

namespace testing {

class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }

    // In [low, high].
    int between(int low, int high) {
        const auto span = static_cast<std::uint64_t>(std::int64_t{high} - low + 1);
        return static_cast<int>(low + static_cast<std::int64_t>(next() % span));
    }

    bool chance(int one_in) { return next() % static_cast<std::uint64_t>(one_in) == 0; }
    std::uint8_t byte() { return static_cast<std::uint8_t>(next() >> 32); }

  private:
    std::uint64_t state_;
};

}  // namespace testing
