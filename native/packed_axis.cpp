#include "packed_axis.h"

#include <algorithm>
#include <new>

namespace slip {
namespace {

// Input i for output i, or where nearest neighbour takes it from; -1 is black.
PackedAxis one_tap_each(const Stretch& stretch, const std::int32_t* positions) {
    auto words = std::make_shared<std::vector<std::int32_t>>(2 + 2 * stretch.count);
    (*words)[0] = 1;
    (*words)[1] = stretch.count;
    for (int i = 0; i < stretch.count; ++i) {
        const int at = positions ? positions[i] : i;
        (*words)[2 + i] = std::max(at, 0);
        (*words)[2 + stretch.count + i] = at < 0 ? 0 : 1 << kWeightBits;
    }
    return words;
}

}  // namespace

PackedAxis pack_axis(const Stretch& stretch, Filter filter) {
    if (stretch.input == stretch.output) return one_tap_each(stretch, nullptr);
    if (filter == Filter::nearest) {
        Buffer positions;
        if (!nearest_positions(stretch, positions)) throw std::bad_alloc();
        return one_tap_each(stretch, positions.as<std::int32_t>());
    }
    Axis axis;
    if (!axis.prepare(stretch, filter, Direction::down, false)) throw std::bad_alloc();
    // Without the padding, which may reach beyond the input.
    const int taps = std::min(axis.taps, stretch.size), count = stretch.count;
    auto words =
        std::make_shared<std::vector<std::int32_t>>(2 + std::size_t{1} * count * (1 + taps));
    std::int32_t *first = words->data() + 2, *weights = first + count;
    (*words)[0] = taps;
    (*words)[1] = count;
    for (int i = 0; i < count; ++i) {
        first[i] = std::min(axis.first[i], stretch.size - taps);
        const int shift = axis.first[i] - first[i];
        const std::int32_t* own = axis.weights + static_cast<std::size_t>(i) * axis.taps;
        for (int t = 0; t < taps; ++t)
            weights[static_cast<std::size_t>(t) * count + i] = t < shift ? 0 : own[t - shift];
    }
    return words;
}

std::size_t AxisCache::Hash::operator()(const Key& key) const noexcept {
    std::uint64_t mixed = 0;
    for (const int part : {key.input, key.output, key.first, key.count, key.filter})
        mixed = (mixed ^ static_cast<std::uint32_t>(part)) * 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(mixed ^ mixed >> 32);
}

PackedAxis AxisCache::get(const Stretch& stretch, Filter filter) {
    const Key key{stretch.input, stretch.output, stretch.first, stretch.count,
                  static_cast<int>(filter)};
    {
        const std::lock_guard lock(mutex_);
        const auto found = axes_.find(key);
        if (found != axes_.end()) return found->second;
    }
    PackedAxis made = pack_axis(stretch, filter);
    const std::size_t bytes = made->size() * sizeof(std::int32_t);
    const std::lock_guard lock(mutex_);
    if (bytes_ + bytes > most_bytes_) {
        axes_.clear();
        bytes_ = 0;
    }
    if (axes_.emplace(key, made).second) bytes_ += bytes;
    return made;
}

}  // namespace slip
