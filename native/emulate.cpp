#include "emulate.h"

#include <algorithm>
#include <vector>

#include "cuda/kernels/huffman.cuh"
#include "cuda/kernels/idct.cuh"
#include "cuda/kernels/resize.cuh"

namespace slip {
namespace {

constexpr cuda::u8 kNaturalOrder[64] = SLIP_NATURAL_ORDER;

// Lanes as many as a group has, one after the other: what they do must not hang on their order.
void build_tables(const cuda::u8* slot, const cuda::Picture& picture, cuda::Table* tables) {
    const auto* codes =
        cuda::part<cuda::Code>(slot, cuda::head_of(slot).codes_at) + picture.first_code;
    for (unsigned i = 0; i < picture.codes; ++i) {
        for (int lane = cuda::kHuffmanGroup; lane-- > 0;)
            cuda::build_lengths(codes[i], tables[i], lane);
        for (int lane = cuda::kHuffmanGroup; lane-- > 0;)
            cuda::build_lookups(codes[i], tables[i], i < picture.dc_codes, lane,
                                cuda::kHuffmanGroup);
    }
}

}  // namespace

void emulate(const std::uint8_t* slot, const SliceSizes& sizes, const std::uint8_t* values,
             int bytes, std::uint8_t* out, std::uint32_t* verdicts) {
    const cuda::Head& head = cuda::head_of(slot);
    const auto* pictures = cuda::part<cuda::Picture>(slot, head.pictures_at);
    // Exactly as large as on the device, so that the sanitizers see what goes beyond.
    std::vector<cuda::i16> coefficients(sizes.coefficients / sizeof(cuda::i16));
    std::vector<cuda::u8> planes(sizes.planes);
    std::vector<cuda::u32> middle(sizes.middle / sizeof(cuda::u32));
    std::vector<cuda::Table> tables(cuda::kMostCodes);
    const cuda::u32 pixels = head.width * head.height;
    const cuda::Output output{
        out, values, cuda::u64{3} * pixels, 1, 3 * head.width, 3, static_cast<cuda::u32>(bytes)};

    for (cuda::u32 group = 0; group < sizes.huffman_groups; ++group) {
        const auto* first = cuda::part<cuda::u32>(slot, head.huffman_groups_at);
        const cuda::u32 number = cuda::picture_of_group(first, head.pictures, group);
        const cuda::Picture& picture = pictures[number];
        build_tables(slot, picture, tables.data());
        const cuda::u32 begin = (group - first[number]) * cuda::kHuffmanGroup;
        const cuda::u32 end = std::min(begin + cuda::kHuffmanGroup, picture.segments);
        for (cuda::u32 s = begin; s < end; ++s) {
            const cuda::u32 found = cuda::decode_segment(slot, picture, s, tables.data(),
                                                         kNaturalOrder, coefficients.data());
            if (found != cuda::kFine)
                verdicts[picture.place] =
                    std::min(verdicts[picture.place], cuda::verdict(s, found));
        }
    }
    for (cuda::u32 p = 0; p < head.pictures; ++p) {
        const cuda::Picture& picture = pictures[p];
        const cuda::u32 blocks = picture.mcus_across * picture.mcu_rows * picture.blocks_per_mcu;
        for (cuda::u32 b = 0; b < blocks; ++b)
            cuda::transform_block(picture, b, coefficients.data(), planes.data());
        const cuda::u32 count = picture.middle_width * picture.middle_height;
        for (cuda::u32 i = 0; i < count; ++i)
            cuda::first_pass(slot, picture, i, planes.data(), middle.data());
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
