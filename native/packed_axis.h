// Directions of a resize as the GPU reads them. A batch of crops has few different ones, and
// batches have the same ones again and again.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "resize_weights.h"

namespace slip {

// The words of an axis in a slot: see cuda/kernels/layout.cuh.
using PackedAxis = std::shared_ptr<const std::vector<std::int32_t>>;

// Throws std::bad_alloc.
PackedAxis pack_axis(const Stretch& stretch, Filter filter);

// Keeps axes, up to some memory. Thread-safe.
class AxisCache {
  public:
    explicit AxisCache(std::size_t most_bytes) : most_bytes_(most_bytes) {}

    PackedAxis get(const Stretch& stretch, Filter filter);

  private:
    struct Key {
        int input, output, first, count, filter;
        bool operator==(const Key&) const = default;
    };
    struct Hash {
        std::size_t operator()(const Key& key) const noexcept;
    };

    std::mutex mutex_;
    std::unordered_map<Key, PackedAxis, Hash> axes_;
    std::size_t most_bytes_, bytes_ = 0;
};

}  // namespace slip
