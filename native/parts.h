// Many bytes, cut into parts that are worth a thread's while.
#pragma once

#include <algorithm>
#include <cstddef>

#include "pool.h"

namespace slip {

// Calls work(first, end) for parts of `count` things of `size` bytes each, on several threads if
// there is enough to do that waking them pays.
template <class Work>
void parallel_parts(std::size_t count, std::size_t size, int threads, const Work& work) {
    constexpr std::size_t kWorthThreads = 256 * 1024, kPartBytes = 64 * 1024;
    const std::size_t part = std::max<std::size_t>(1, kPartBytes / std::max<std::size_t>(1, size));
    if (count * size < kWorthThreads) return work(std::size_t{0}, count);
    parallel_for((count + part - 1) / part, threads,
                 [&](std::size_t i) { work(i * part, std::min(count, (i + 1) * part)); });
}

// Calls work(image, first pixel, pixels) for parts of all images.
template <class Work>
void parallel_pixels(std::size_t images, std::size_t pixels, int threads, const Work& work) {
    constexpr std::size_t kPart = 8192;
    const std::size_t parts = (pixels + kPart - 1) / kPart;
    parallel_parts(images * parts, 3 * std::min(pixels, kPart), threads,
                   [&](std::size_t first, std::size_t end) {
                       for (std::size_t i = first; i < end; ++i) {
                           const std::size_t start = i % parts * kPart;
                           work(i / parts, start, std::min(kPart, pixels - start));
                       }
                   });
}

}  // namespace slip
