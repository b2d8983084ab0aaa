#include "areas.h"

#include <cmath>

namespace slip {
namespace {

struct Side {
    std::int64_t at, size;
};

// One of the places where `size` fits into `full`, all with the same chance.
std::int64_t place(std::uint32_t word, std::int64_t full, std::int64_t size) {
    const std::uint64_t places = static_cast<std::uint64_t>(full - size) + 1;
    return static_cast<std::int64_t>((word * places) >> 32);
}

Side in_the_middle(double size, std::int64_t full) {
    const auto whole = static_cast<std::int64_t>(size);
    return {(full - whole) / 2, whole};
}

}  // namespace

bool choose_areas(const std::uint32_t* words, std::size_t stride, const double* aspects,
                  const std::int64_t* sizes, std::size_t count, const AreaRange& range,
                  std::int64_t* boxes) {
    bool has_pixels = true;
    for (std::size_t i = 0; i < count; ++i, words += stride, aspects += kAreaTries) {
        const std::int64_t full_width = sizes[i], full_height = sizes[count + i];
        const auto most_width = static_cast<double>(full_width);
        const auto most_height = static_cast<double>(full_height);
        const double all = most_width * most_height;
        Side across, down;
        std::size_t t = 0;
        for (; t < kAreaTries; ++t) {
            const double area = all * (range.scale_low + words[2 * t] * range.scale_step);
            const double width = std::nearbyint(std::sqrt(area * aspects[t]));
            const double height = std::nearbyint(std::sqrt(area / aspects[t]));
            if (!(width > 0 && width <= most_width && height > 0 && height <= most_height))
                continue;
            across.size = static_cast<std::int64_t>(width);
            down.size = static_cast<std::int64_t>(height);
            across.at = place(words[2 * kAreaTries + 1], full_width, across.size);
            down.at = place(words[2 * kAreaTries], full_height, down.size);
            break;
        }
        if (t == kAreaTries) {
            const double ratio = most_width / most_height;
            const bool wide = ratio > range.ratio_high, tall = ratio < range.ratio_low;
            across = in_the_middle(
                wide ? std::nearbyint(most_height * range.ratio_high) : most_width, full_width);
            down = in_the_middle(tall ? std::nearbyint(most_width / range.ratio_low) : most_height,
                                 full_height);
            has_pixels = has_pixels && across.size > 0 && down.size > 0;
        }
        boxes[i] = across.at;
        boxes[count + i] = down.at;
        boxes[2 * count + i] = across.size;
        boxes[3 * count + i] = down.size;
    }
    return has_pixels;
}

}  // namespace slip
