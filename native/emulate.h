// The GPU's own source, run by the processor: to test what the kernels do where there is no GPU.
#pragma once

#include <cstdint>

#include "slices.h"

namespace slip {

// Runs all kernels over a slot. `out` gets the results as `bytes` large entries of values[3][256],
// each picture in its place, with `step` entries between pictures, rows of pixels after rows of
// pixels; `verdicts`, one per place and kFine before, what is wrong. Throws std::bad_alloc.
void emulate(const std::uint8_t* slot, const SliceSizes& sizes, const std::uint8_t* values,
             int bytes, std::uint8_t* out, std::uint32_t* verdicts);

// What a verdict means.
Status status_of_verdict(std::uint32_t verdict);

}  // namespace slip
