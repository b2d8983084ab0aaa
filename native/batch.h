// Pictures of a batch, from where they lie to finished pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "decode.h"

namespace slip {

using View = std::span<const std::uint8_t>;

// Byte ranges of some maps, one per sample. All of them lie inside: the caller has checked.
struct Payloads {
    std::size_t count;
    std::vector<View> maps;
    const std::uint32_t* map_ids;
    const std::uint64_t *offsets, *lengths;
    const std::uint32_t* checksums;  // or null

    View operator[](std::size_t i) const {
        return maps[map_ids[i]].subspan(offsets[i], lengths[i]);
    }
    const std::uint32_t* checksum(std::size_t i) const {
        return checksums ? checksums + i : nullptr;
    }
};

struct Batch {
    const Payloads& payloads;
    const std::uint8_t* codings;
    const std::int32_t* boxes;
    const std::uint8_t* flips;
    const std::int32_t* resized;  // or null
    std::uint8_t* out;
    int height, width;
    Filter filter;
    PassOrder order;
};

// The calling thread's.
Scratch& thread_scratch();

// Writes one Status per picture.
void decode_batch(const Batch& batch, std::size_t count, int threads, std::int32_t* statuses);

}  // namespace slip
