// The kernels. Each finds its thread's part of the work; what it does there is in the other files.
#include "huffman.cuh"
#include "resize.cuh"

namespace slip::cuda {

__device__ const u8 kNaturalOrder[64] = SLIP_NATURAL_ORDER;

// The picture of this group of threads, and the group's number in it.
__device__ const Picture& own_picture(const u8* slot, u32 groups_at, u32& group) {
    const Head& head = head_of(slot);
    const u32* first_group = part<u32>(slot, groups_at);
    const u32 number = picture_of_group(first_group, head.pictures, blockIdx.x);
    group = blockIdx.x - first_group[number];
    return part<Picture>(slot, head.pictures_at)[number];
}

}  // namespace slip::cuda

using namespace slip::cuda;

// Groups of kSegmentGroup segments; `verdicts` are kFine before.
extern "C" __global__ void __launch_bounds__(kSegmentGroup)
    decode_segments(const u8* __restrict__ slot, u8* __restrict__ planes, u32* __restrict__ verdicts) {
    extern __shared__ Table tables[];
    __shared__ u32 blocks[kSegmentGroup * kBlockWords];
    __shared__ u8 order[64];
    __shared__ Picture picture;  // near: parts of it are needed for every block
    u32 group;
    const Picture& far = own_picture(slot, head_of(slot).segment_groups_at, group);
    for (u32 i = threadIdx.x; i < sizeof(Picture) / sizeof(u32); i += kSegmentGroup)
        reinterpret_cast<u32*>(&picture)[i] = reinterpret_cast<const u32*>(&far)[i];
    __syncthreads();
    const Code* codes = part<Code>(slot, head_of(slot).codes_at) + picture.first_code;
    if (threadIdx.x < picture.codes) build_lengths(codes[threadIdx.x], tables[threadIdx.x]);
    order[threadIdx.x] = kNaturalOrder[threadIdx.x];
    __syncthreads();
    for (u32 i = 0; i < picture.codes; ++i)
        build_lookups(codes[i], tables[i], i < picture.dc_codes, threadIdx.x, kSegmentGroup);
    __syncthreads();
    const u32 number = group * kSegmentGroup + threadIdx.x;
    if (number >= picture.segments) return;
    const u32 found =
        decode_segment(slot, picture, number, tables, order, blocks + threadIdx.x * kBlockWords, planes);
    if (found != kFine) atomicMin(&verdicts[picture.place], verdict(number, found));
}

extern "C" __global__ void __launch_bounds__(kPixelThreads)
    resize_first(const u8* __restrict__ slot, const u8* __restrict__ planes, u32* __restrict__ middle) {
    __shared__ u32 kept[kRowPixels];
    u32 group;
    const Picture& picture = own_picture(slot, head_of(slot).pixel_groups_at, group);
    if (picture.rows_per_group) {
        const u32 first = group * picture.rows_per_group;
        const u32 end = smaller(first + picture.rows_per_group, picture.middle_height);
        keep_rows(picture, first, end, planes, kept, threadIdx.x, kPixelThreads);
        __syncthreads();
        first_pass_of_rows(slot, picture, first, end, kept, middle, threadIdx.x, kPixelThreads);
        return;
    }
    const u32 end = picture.middle_width * picture.middle_height;
    for (u32 i = threadIdx.x; i < kPixelGroup; i += kPixelThreads) {
        const u32 number = group * kPixelGroup + i;
        if (number < end) first_pass(slot, picture, number, planes, middle);
    }
}

extern "C" __global__ void __launch_bounds__(kPixelThreads)
    resize_second(const u8* __restrict__ slot, const u32* __restrict__ middle, u8* data, const u8* values,
                  u64 picture_step, u32 channel_step, u32 row_step, u32 column_step, u32 bytes) {
    const Output out{data, values, picture_step, channel_step, row_step, column_step, bytes};
    const Head& head = head_of(slot);
    const Picture& picture = part<Picture>(slot, head.pictures_at)[blockIdx.y];
    const u32 number = blockIdx.x * kPixelThreads + threadIdx.x;
    if (number < head.width * head.height)
        finish_pixel(slot, picture, number % head.width, number / head.width, middle, out);
}

// Pixels that are decoded already: `pictures` of uint8[height, width, 3], each to go to its place.
extern "C" __global__ void __launch_bounds__(kPixelThreads)
    place_pixels(const u8* __restrict__ pixels, const u32* __restrict__ places, u32 width, u32 height, u8* data,
                 const u8* values, u64 picture_step, u32 channel_step, u32 row_step, u32 column_step, u32 bytes) {
    const Output out{data, values, picture_step, channel_step, row_step, column_step, bytes};
    const u32 number = blockIdx.x * kPixelThreads + threadIdx.x;
    if (number >= width * height) return;
    const u8* pixel = pixels + (static_cast<u64>(blockIdx.y) * width * height + number) * 3;
    put_pixel(out, places[blockIdx.y], number % width, number / width, pack_pixel(pixel[0], pixel[1], pixel[2]));
}
