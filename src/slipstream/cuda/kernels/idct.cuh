// libjpeg's inverse DCT ("islow") of one 8x8 block, bit for bit.
#pragma once

#include "layout.cuh"

namespace slip::cuda {

// Sums of damaged coefficients may leave 32 bits; they wrap.
SLIP_BOTH i32 times(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a) * static_cast<u32>(b)); }
SLIP_BOTH i32 plus(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a) + static_cast<u32>(b)); }
SLIP_BOTH i32 minus(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a) - static_cast<u32>(b)); }
SLIP_BOTH i32 low_16(i32 a) { return static_cast<i16>(a); }

// A pass over eight numbers of 16 bits, with 13-bit fixed-point constants. The results are 13 bits too large.
SLIP_BOTH void idct_eight(const i32 (&in)[8], i32 (&out)[8]) {
    constexpr i32 f0_298 = 2446, f0_390 = 3196, f0_541 = 4433, f0_765 = 6270, f0_899 = 7373, f1_175 = 9633,
                  f1_501 = 12299, f1_847 = 15137, f1_961 = 16069, f2_053 = 16819, f2_562 = 20995, f3_072 = 25172;
    const i32 e2 = plus(times(in[2], f0_541), times(in[6], f0_541 - f1_847));
    const i32 e3 = plus(times(in[2], f0_541 + f0_765), times(in[6], f0_541));
    const i32 e0 = times(low_16(in[0] + in[4]), 8192), e1 = times(low_16(in[0] - in[4]), 8192);
    const i32 even[4] = {plus(e0, e3), plus(e1, e2), minus(e1, e2), minus(e0, e3)};
    const i32 z3 = low_16(in[7] + in[3]), z4 = low_16(in[5] + in[1]);
    const i32 w3 = plus(times(z3, f1_175 - f1_961), times(z4, f1_175));
    const i32 w4 = plus(times(z3, f1_175), times(z4, f1_175 - f0_390));
    const i32 odd[4] = {
        plus(plus(times(in[7], -f0_899), times(in[1], f1_501 - f0_899)), w4),
        plus(plus(times(in[5], -f2_562), times(in[3], f3_072 - f2_562)), w3),
        plus(plus(times(in[5], f2_053 - f2_562), times(in[3], -f2_562)), w4),
        plus(plus(times(in[7], f0_298 - f0_899), times(in[1], -f0_899)), w3),
    };
    for (int i = 0; i < 4; ++i) {
        out[i] = plus(even[i], odd[i]);
        out[7 - i] = minus(even[i], odd[i]);
    }
}

// Rounds and brings down to 16 bits. libjpeg-turbo clamps on x86-64 and cuts on arm64, and so does our engine
// there; it shows in damaged pictures alone.
template <int shift>
SLIP_BOTH i32 round_to_16(i32 value) {
    const i32 rounded = plus(value, 1 << (shift - 1)) >> shift;
#if defined(__aarch64__) || defined(SLIP_HOST_AARCH64)
    return low_16(rounded);
#else
    return larger(smaller(rounded, 32767), -32768);
#endif
}

SLIP_BOTH u32 to_sample(i32 value) {
#if defined(__aarch64__) || defined(SLIP_HOST_AARCH64)
    const i32 level = (low_16(value >> 16) + 2) >> 2;
#else
    const i32 level = round_to_16<18>(value);
#endif
    return as_byte(level + 128);
}

SLIP_BOTH i32 first_of(u32 two) { return low_16(static_cast<i32>(two)); }
SLIP_BOTH i32 second_of(u32 two) { return static_cast<i32>(two) >> 16; }
SLIP_BOTH u32 pair_of(i32 first, i32 second) {
    return (static_cast<u32>(first) & 0xFFFF) | static_cast<u32>(second) << 16;
}

// A block's 64 coefficients, in natural order, two in a word, into 8 rows of 8 samples. Leaves them zero, for the next
// block. Between the passes numbers go back to where they came from: 64 of them would take too many registers.
SLIP_BOTH void idct_block(u32* block, const u32* quant, u8* out, i32 stride) {
    for (int x = 0; x < 4; ++x) {
        i32 in[2][8], sums[2][8];
        for (int y = 0; y < 8; ++y) {
            const u32 two = block[4 * y + x], factors = quant[4 * y + x];
            in[0][y] = low_16(times(first_of(two), first_of(factors)));
            in[1][y] = low_16(times(second_of(two), second_of(factors)));
        }
        idct_eight(in[0], sums[0]);
        idct_eight(in[1], sums[1]);
        for (int y = 0; y < 8; ++y)
            block[4 * y + x] = pair_of(round_to_16<11>(sums[0][y]), round_to_16<11>(sums[1][y]));
    }
    for (int y = 0; y < 8; ++y) {
        i32 in[8], sums[8];
        for (int x = 0; x < 4; ++x) {
            in[2 * x] = first_of(block[4 * y + x]);
            in[2 * x + 1] = second_of(block[4 * y + x]);
            block[4 * y + x] = 0;
        }
        idct_eight(in, sums);
        u64 samples = 0;
        for (int x = 0; x < 8; ++x) samples |= static_cast<u64>(to_sample(sums[x])) << 8 * x;
        *reinterpret_cast<u64*>(out + y * stride) = samples;
    }
}

}  // namespace slip::cuda
