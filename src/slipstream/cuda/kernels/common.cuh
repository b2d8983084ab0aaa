// For both sides: CUDA compiles this for the device, g++ for the host, where the same code is tested.
#pragma once

#if defined(__CUDACC__)
#define SLIP_BOTH __host__ __device__ __forceinline__
#else
#define SLIP_BOTH inline __attribute__((always_inline))
#endif

namespace slip::cuda {

// NVRTC has no <cstdint>.
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i16 = short;
using i32 = int;

SLIP_BOTH i32 smaller(i32 a, i32 b) { return a < b ? a : b; }
SLIP_BOTH i32 larger(i32 a, i32 b) { return a > b ? a : b; }
SLIP_BOTH u32 as_byte(i32 value) { return static_cast<u32>(smaller(larger(value, 0), 255)); }

// Which picture group number `group` belongs to: the last whose first group is not behind it.
// `first_group` has one entry per picture and one for the end.
SLIP_BOTH u32 picture_of_group(const u32* first_group, u32 pictures, u32 group) {
    u32 low = 0, high = pictures;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (first_group[middle] <= group) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

}  // namespace slip::cuda
