#include "emulate.h"

#include <algorithm>
#include <vector>

#include "cuda/kernels/huffman.cuh"
#include "cuda/kernels/resize.cuh"

namespace slip {
namespace {

constexpr cuda::u8 kNaturalOrder[64] = SLIP_NATURAL_ORDER;

// Threads of a group, one after the other and the last first: what they do must not hang on it.
template <class Work>
void each_lane(cuda::u32 lanes, Work&& work) {
    for (cuda::u32 lane = lanes; lane-- > 0;) work(lane);
}

void build_tables(const cuda::u8* slot, const cuda::Picture& picture, cuda::Table* tables) {
    const auto* codes =
        cuda::part<cuda::Code>(slot, cuda::head_of(slot).codes_at) + picture.first_code;
    for (cuda::u32 i = 0; i < picture.codes; ++i) {
        cuda::build_lengths(codes[i], tables[i]);
        each_lane(cuda::kSegmentGroup, [&](cuda::u32 lane) {
            cuda::build_lookups(codes[i], tables[i], i < picture.dc_codes, lane,
                                cuda::kSegmentGroup);
        });
    }
}

// As the kernel of the same name.
void resize_first(const cuda::u8* slot, const cuda::Picture& picture, const cuda::u8* planes,
                  cuda::u32* middle) {
    const cuda::u32 rows = picture.rows_per_group;
    for (cuda::u32 first = 0; rows && first < picture.middle_height; first += rows) {
        const cuda::u32 end = std::min(first + rows, picture.middle_height);
        std::vector<cuda::u32> kept(cuda::kRowPixels);
        each_lane(cuda::kPixelThreads, [&](cuda::u32 lane) {
            cuda::keep_rows(picture, first, end, planes, kept.data(), lane, cuda::kPixelThreads);
        });
        each_lane(cuda::kPixelThreads, [&](cuda::u32 lane) {
            cuda::first_pass_of_rows(slot, picture, first, end, kept.data(), middle, lane,
                                     cuda::kPixelThreads);
        });
    }
    const cuda::u32 pixels = rows ? 0 : picture.middle_width * picture.middle_height;
    for (cuda::u32 i = 0; i < pixels; ++i) cuda::first_pass(slot, picture, i, planes, middle);
}

}  // namespace

void emulate(const std::uint8_t* slot, const SliceSizes& sizes, const std::uint8_t* values,
             int bytes, std::uint8_t* out, std::uint32_t* verdicts) {
    const cuda::Head& head = cuda::head_of(slot);
    const auto* pictures = cuda::part<cuda::Picture>(slot, head.pictures_at);
    // Exactly as large as on the device, so that the sanitizers see what goes beyond.
    std::vector<cuda::u8> planes(sizes.planes);
    std::vector<cuda::u32> middle(sizes.middle / sizeof(cuda::u32));
    std::vector<cuda::Table> tables(sizes.table_bytes / sizeof(cuda::Table));
    std::vector<cuda::u32> words(cuda::kBlockWords);
    const cuda::u32 pixels = head.width * head.height;
    const cuda::Output output{
        out, values, cuda::u64{3} * pixels, 1, 3 * head.width, 3, static_cast<cuda::u32>(bytes)};

    for (cuda::u32 group = 0; group < sizes.segment_groups; ++group) {
        const auto* first = cuda::part<cuda::u32>(slot, head.segment_groups_at);
        const cuda::u32 number = cuda::picture_of_group(first, head.pictures, group);
        const cuda::Picture& picture = pictures[number];
        build_tables(slot, picture, tables.data());
        const cuda::u32 begin = (group - first[number]) * cuda::kSegmentGroup;
        const cuda::u32 end = std::min(begin + cuda::kSegmentGroup, picture.segments);
        for (cuda::u32 s = begin; s < end; ++s) {
            const cuda::u32 found = cuda::decode_segment(
                slot, picture, s, tables.data(), kNaturalOrder, words.data(), planes.data());
            if (found != cuda::kFine)
                verdicts[picture.place] =
                    std::min(verdicts[picture.place], cuda::verdict(s, found));
        }
    }
    for (cuda::u32 p = 0; p < head.pictures; ++p) {
        const cuda::Picture& picture = pictures[p];
        resize_first(slot, picture, planes.data(), middle.data());
        for (cuda::u32 i = 0; i < pixels; ++i)
            cuda::finish_pixel(slot, picture, i % head.width, i / head.width, middle.data(),
                               output);
    }
}

Status status_of_verdict(std::uint32_t verdict) {
    if (verdict == cuda::kFine) return Status::ok;
    switch (verdict & 3) {
        case cuda::kBadCode: return Status::huffman_code;
        case cuda::kOverrun: return Status::segment_overrun;
        default: return Status::segment_leftover;
    }
}

}  // namespace slip
