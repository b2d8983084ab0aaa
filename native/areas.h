// The windows of RandomResizedCrop, from random words. src/slipstream/augment/steps.py has the
// contract; the arithmetic here is its, operation by operation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slip {

constexpr std::size_t kAreaTries = 10;
constexpr std::size_t kAreaWords = 2 * kAreaTries + 2;  // area and ratio of each try; top, left

struct AreaRange {
    double scale_low, scale_step;  // a share of the picture is low + word * step
    double ratio_low, ratio_high;
};

// For each picture the first try that fits, else the largest window in the middle, which may have
// a side of 0. `words` are [count, stride], `aspects` [count, kAreaTries], `sizes` and `boxes` have
// widths and heights, or x, y, widths and heights, each of all pictures. Returns whether every box
// has a pixel.
bool choose_areas(const std::uint32_t* words, std::size_t stride, const double* aspects,
                  const std::int64_t* sizes, std::size_t count, const AreaRange& range,
                  std::int64_t* boxes);

}  // namespace slip
