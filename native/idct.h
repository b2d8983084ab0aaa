// libjpeg's inverse DCT ("islow") of 8x8 blocks, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "entropy.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#else
#error "x86-64 or arm64 is needed"
#endif

namespace slip {
namespace SLIP_ISA {

// 13-bit fixed-point constants of the Loeffler-Ligtenberg-Moschytz DCT.
constexpr int kF0_298 = 2446, kF0_390 = 3196, kF0_541 = 4433, kF0_765 = 6270, kF0_899 = 7373,
              kF1_175 = 9633, kF1_501 = 12299, kF1_847 = 15137, kF1_961 = 16069, kF2_053 = 16819,
              kF2_562 = 20995, kF3_072 = 25172;

// A block with nothing but DC is flat.
SLIP_INLINE void idct_flat(int dc, int quant, std::uint8_t* out, std::ptrdiff_t stride) {
    const int level = ((static_cast<std::int16_t>(dc * quant * 4) + 16) >> 5) + 128;
    const int value = level < 0 ? 0 : level > 255 ? 255 : level;
    const std::uint64_t row = 0x0101010101010101u * static_cast<std::uint64_t>(value);
    for (int y = 0; y < 8; ++y) std::memcpy(out + y * stride, &row, 8);
}

#if defined(__ARM_NEON)

// One pass over eight columns of four lanes each half. Products are exact in 32 bits, so regrouping
// them changes nothing.
struct Columns {
    int32x4_t even[4], odd[4];
};

SLIP_INLINE Columns idct_half(const int16x4_t r0, const int16x4_t r1, const int16x4_t r2,
                              const int16x4_t r3, const int16x4_t r4, const int16x4_t r5,
                              const int16x4_t r6, const int16x4_t r7) {
    Columns c;
    const int32x4_t e2 = vmlal_n_s16(vmull_n_s16(r2, kF0_541), r6, kF0_541 - kF1_847);
    const int32x4_t e3 = vmlal_n_s16(vmull_n_s16(r6, kF0_541), r2, kF0_541 + kF0_765);
    const int32x4_t e0 = vshll_n_s16(vadd_s16(r0, r4), 13);
    const int32x4_t e1 = vshll_n_s16(vsub_s16(r0, r4), 13);
    c.even[0] = vaddq_s32(e0, e3);
    c.even[3] = vsubq_s32(e0, e3);
    c.even[1] = vaddq_s32(e1, e2);
    c.even[2] = vsubq_s32(e1, e2);
    const int16x4_t z3 = vadd_s16(r7, r3), z4 = vadd_s16(r5, r1);
    const int32x4_t w3 = vmlal_n_s16(vmull_n_s16(z3, kF1_175 - kF1_961), z4, kF1_175);
    const int32x4_t w4 = vmlal_n_s16(vmull_n_s16(z4, kF1_175 - kF0_390), z3, kF1_175);
    c.odd[3] = vmlal_n_s16(vmlal_n_s16(w3, r7, kF0_298 - kF0_899), r1, -kF0_899);
    c.odd[2] = vmlal_n_s16(vmlal_n_s16(w4, r5, kF2_053 - kF2_562), r3, -kF2_562);
    c.odd[1] = vmlal_n_s16(vmlal_n_s16(w3, r3, kF3_072 - kF2_562), r5, -kF2_562);
    c.odd[0] = vmlal_n_s16(vmlal_n_s16(w4, r1, kF1_501 - kF0_899), r7, -kF0_899);
    return c;
}

// The same where only the first four inputs are not zero.
SLIP_INLINE Columns idct_half_sparse(const int16x4_t r0, const int16x4_t r1, const int16x4_t r2,
                                     const int16x4_t r3) {
    Columns c;
    const int32x4_t e0 = vshll_n_s16(r0, 13);
    const int32x4_t e2 = vmull_n_s16(r2, kF0_541), e3 = vmull_n_s16(r2, kF0_541 + kF0_765);
    c.even[0] = vaddq_s32(e0, e3);
    c.even[3] = vsubq_s32(e0, e3);
    c.even[1] = vaddq_s32(e0, e2);
    c.even[2] = vsubq_s32(e0, e2);
    c.odd[0] = vmlal_n_s16(vmull_n_s16(r1, kF1_175 - kF0_390 + kF1_501 - kF0_899), r3, kF1_175);
    c.odd[1] = vmlal_n_s16(vmull_n_s16(r1, kF1_175), r3, kF1_175 - kF1_961 + kF3_072 - kF2_562);
    c.odd[2] = vmlal_n_s16(vmull_n_s16(r1, kF1_175 - kF0_390), r3, kF1_175 - kF2_562);
    c.odd[3] = vmlal_n_s16(vmull_n_s16(r1, kF1_175 - kF0_899), r3, kF1_175 - kF1_961);
    return c;
}

SLIP_INLINE void transpose(int16x8_t (&r)[8]) {
    const int16x8x2_t a = vtrnq_s16(r[0], r[1]), b = vtrnq_s16(r[2], r[3]),
                      c = vtrnq_s16(r[4], r[5]), d = vtrnq_s16(r[6], r[7]);
    const auto pair = [](int16x8_t x, int16x8_t y) {
        return vtrnq_s32(vreinterpretq_s32_s16(x), vreinterpretq_s32_s16(y));
    };
    const int32x4x2_t ab0 = pair(a.val[0], b.val[0]), ab1 = pair(a.val[1], b.val[1]),
                      cd0 = pair(c.val[0], d.val[0]), cd1 = pair(c.val[1], d.val[1]);
    const auto low = [](int32x4_t x, int32x4_t y) {
        return vreinterpretq_s16_s64(
            vtrn1q_s64(vreinterpretq_s64_s32(x), vreinterpretq_s64_s32(y)));
    };
    const auto high = [](int32x4_t x, int32x4_t y) {
        return vreinterpretq_s16_s64(
            vtrn2q_s64(vreinterpretq_s64_s32(x), vreinterpretq_s64_s32(y)));
    };
    r[0] = low(ab0.val[0], cd0.val[0]);
    r[1] = low(ab1.val[0], cd1.val[0]);
    r[2] = low(ab0.val[1], cd0.val[1]);
    r[3] = low(ab1.val[1], cd1.val[1]);
    r[4] = high(ab0.val[0], cd0.val[0]);
    r[5] = high(ab1.val[0], cd1.val[0]);
    r[6] = high(ab0.val[1], cd0.val[1]);
    r[7] = high(ab1.val[1], cd1.val[1]);
}

// First pass: rounds to 16 bits with two more than the input had.
SLIP_INLINE void round_columns(const Columns& low, const Columns& high, int16x8_t (&r)[8]) {
    for (int i = 0; i < 4; ++i) {
        r[i] = vcombine_s16(vrshrn_n_s32(vaddq_s32(low.even[i], low.odd[i]), 11),
                            vrshrn_n_s32(vaddq_s32(high.even[i], high.odd[i]), 11));
        r[7 - i] = vcombine_s16(vrshrn_n_s32(vsubq_s32(low.even[i], low.odd[i]), 11),
                                vrshrn_n_s32(vsubq_s32(high.even[i], high.odd[i]), 11));
    }
}

// Second pass: a shift by 18 with rounding, in two steps that round once: floor by 16, then 2 with
// rounding.
SLIP_INLINE void store_rows(const Columns& low, const Columns& high, std::uint8_t* out,
                            std::ptrdiff_t stride) {
    int16x8_t r[8];
    for (int i = 0; i < 4; ++i) {
        r[i] = vcombine_s16(vshrn_n_s32(vaddq_s32(low.even[i], low.odd[i]), 16),
                            vshrn_n_s32(vaddq_s32(high.even[i], high.odd[i]), 16));
        r[7 - i] = vcombine_s16(vshrn_n_s32(vsubq_s32(low.even[i], low.odd[i]), 16),
                                vshrn_n_s32(vsubq_s32(high.even[i], high.odd[i]), 16));
    }
    transpose(r);
    const uint8x8_t middle = vdup_n_u8(128);
    for (int i = 0; i < 8; ++i) {
        const int8x8_t samples = vqrshrn_n_s16(r[i], 2);
        vst1_u8(out + i * stride, vadd_u8(vreinterpret_u8_s8(samples), middle));
    }
}

SLIP_INLINE void idct_block(const std::int16_t* block, const std::int16_t* quant, std::uint8_t* out,
                            std::ptrdiff_t stride) {
    int16x8_t r[8];
    for (int i = 0; i < 8; ++i)
        r[i] = vmulq_s16(vld1q_s16(block + 8 * i), vld1q_s16(quant + 8 * i));
    const auto half = [&](auto get) {
        return idct_half(get(r[0]), get(r[1]), get(r[2]), get(r[3]), get(r[4]), get(r[5]),
                         get(r[6]), get(r[7]));
    };
    const auto low_half = [](int16x8_t v) { return vget_low_s16(v); };
    const auto high_half = [](int16x8_t v) { return vget_high_s16(v); };
    Columns low = half(low_half), high = half(high_half);
    round_columns(low, high, r);
    transpose(r);
    low = half(low_half);
    high = half(high_half);
    store_rows(low, high, out, stride);
}

// A block whose coefficients lie in its upper left 4x4 corner.
SLIP_INLINE void idct_corner(const std::int16_t* block, const std::int16_t* quant,
                             std::uint8_t* out, std::ptrdiff_t stride) {
    int16x4_t c[4];
    for (int i = 0; i < 4; ++i) c[i] = vmul_s16(vld1_s16(block + 8 * i), vld1_s16(quant + 8 * i));
    const Columns first = idct_half_sparse(c[0], c[1], c[2], c[3]);
    int16x4_t top[8];
    for (int i = 0; i < 4; ++i) {
        top[i] = vrshrn_n_s32(vaddq_s32(first.even[i], first.odd[i]), 11);
        top[7 - i] = vrshrn_n_s32(vsubq_s32(first.even[i], first.odd[i]), 11);
    }
    int16x8_t r[8];
    const int16x4_t zero = vdup_n_s16(0);
    for (int i = 0; i < 8; ++i) r[i] = vcombine_s16(top[i], zero);
    transpose(r);
    const Columns low = idct_half_sparse(vget_low_s16(r[0]), vget_low_s16(r[1]), vget_low_s16(r[2]),
                                         vget_low_s16(r[3]));
    const Columns high = idct_half_sparse(vget_high_s16(r[0]), vget_high_s16(r[1]),
                                          vget_high_s16(r[2]), vget_high_s16(r[3]));
    store_rows(low, high, out, stride);
}

#else

// Rows of eight 16-bit numbers: of one block, or with AVX2 of two, one in each 128-bit half.
#if defined(__AVX2__)
using Rows = __m256i;
SLIP_INLINE Rows zeros() { return _mm256_setzero_si256(); }
SLIP_INLINE Rows same(int v) { return _mm256_set1_epi32(v); }
SLIP_INLINE Rows add16(Rows a, Rows b) { return _mm256_add_epi16(a, b); }
SLIP_INLINE Rows sub16(Rows a, Rows b) { return _mm256_sub_epi16(a, b); }
SLIP_INLINE Rows add32(Rows a, Rows b) { return _mm256_add_epi32(a, b); }
SLIP_INLINE Rows sub32(Rows a, Rows b) { return _mm256_sub_epi32(a, b); }
SLIP_INLINE Rows madd(Rows a, Rows b) { return _mm256_madd_epi16(a, b); }
SLIP_INLINE Rows pack32(Rows a, Rows b) { return _mm256_packs_epi32(a, b); }
SLIP_INLINE Rows low16(Rows a, Rows b) { return _mm256_unpacklo_epi16(a, b); }
SLIP_INLINE Rows high16(Rows a, Rows b) { return _mm256_unpackhi_epi16(a, b); }
SLIP_INLINE Rows low32(Rows a, Rows b) { return _mm256_unpacklo_epi32(a, b); }
SLIP_INLINE Rows high32(Rows a, Rows b) { return _mm256_unpackhi_epi32(a, b); }
SLIP_INLINE Rows low64(Rows a, Rows b) { return _mm256_unpacklo_epi64(a, b); }
SLIP_INLINE Rows high64(Rows a, Rows b) { return _mm256_unpackhi_epi64(a, b); }
template <int bits>
SLIP_INLINE Rows shift32(Rows v) {
    return _mm256_srai_epi32(v, bits);
}
#else
using Rows = __m128i;
SLIP_INLINE Rows zeros() { return _mm_setzero_si128(); }
SLIP_INLINE Rows same(int v) { return _mm_set1_epi32(v); }
SLIP_INLINE Rows add16(Rows a, Rows b) { return _mm_add_epi16(a, b); }
SLIP_INLINE Rows sub16(Rows a, Rows b) { return _mm_sub_epi16(a, b); }
SLIP_INLINE Rows add32(Rows a, Rows b) { return _mm_add_epi32(a, b); }
SLIP_INLINE Rows sub32(Rows a, Rows b) { return _mm_sub_epi32(a, b); }
SLIP_INLINE Rows madd(Rows a, Rows b) { return _mm_madd_epi16(a, b); }
SLIP_INLINE Rows pack32(Rows a, Rows b) { return _mm_packs_epi32(a, b); }
SLIP_INLINE Rows low16(Rows a, Rows b) { return _mm_unpacklo_epi16(a, b); }
SLIP_INLINE Rows high16(Rows a, Rows b) { return _mm_unpackhi_epi16(a, b); }
SLIP_INLINE Rows low32(Rows a, Rows b) { return _mm_unpacklo_epi32(a, b); }
SLIP_INLINE Rows high32(Rows a, Rows b) { return _mm_unpackhi_epi32(a, b); }
SLIP_INLINE Rows low64(Rows a, Rows b) { return _mm_unpacklo_epi64(a, b); }
SLIP_INLINE Rows high64(Rows a, Rows b) { return _mm_unpackhi_epi64(a, b); }
template <int bits>
SLIP_INLINE Rows shift32(Rows v) {
    return _mm_srai_epi32(v, bits);
}
#endif

// 32-bit numbers of columns 0 to 3, 4 to 7.
struct Wide {
    Rows low, high;
};

SLIP_INLINE Wide pairs(Rows a, Rows b) { return {low16(a, b), high16(a, b)}; }
SLIP_INLINE Wide add(const Wide& a, const Wide& b) {
    return {add32(a.low, b.low), add32(a.high, b.high)};
}
SLIP_INLINE Wide subtract(const Wide& a, const Wide& b) {
    return {sub32(a.low, b.low), sub32(a.high, b.high)};
}

// a times the first of each pair and b times the second.
SLIP_INLINE Wide weigh_pairs(const Wide& v, int a, int b) {
    const Rows weights = same(static_cast<int>(static_cast<std::uint32_t>(b) << 16 | (a & 0xFFFF)));
    return {madd(v.low, weights), madd(v.high, weights)};
}

SLIP_INLINE Wide times_8192(Rows v) {
    const Wide shifted = pairs(zeros(), v);
    return {shift32<3>(shifted.low), shift32<3>(shifted.high)};
}

template <int shift>
SLIP_INLINE Rows round_wide(const Wide& v) {
    const Rows half = same(1 << (shift - 1));
    return pack32(shift32<shift>(add32(v.low, half)), shift32<shift>(add32(v.high, half)));
}

// One pass, in the same steps as libjpeg-turbo's own code for these instructions, so that even
// damaged coefficients that overflow give its pixels.
template <int shift>
SLIP_INLINE void idct_pass(Rows (&r)[8]) {
    const Wide r26 = pairs(r[2], r[6]);
    const Wide e2 = weigh_pairs(r26, kF0_541, kF0_541 - kF1_847);
    const Wide e3 = weigh_pairs(r26, kF0_541 + kF0_765, kF0_541);
    const Wide e0 = times_8192(add16(r[0], r[4])), e1 = times_8192(sub16(r[0], r[4]));
    const Wide even[4] = {add(e0, e3), add(e1, e2), subtract(e1, e2), subtract(e0, e3)};
    const Wide z34 = pairs(add16(r[7], r[3]), add16(r[5], r[1]));
    const Wide w3 = weigh_pairs(z34, kF1_175 - kF1_961, kF1_175);
    const Wide w4 = weigh_pairs(z34, kF1_175, kF1_175 - kF0_390);
    const Wide r71 = pairs(r[7], r[1]), r53 = pairs(r[5], r[3]);
    const Wide odd[4] = {add(weigh_pairs(r71, -kF0_899, kF1_501 - kF0_899), w4),
                         add(weigh_pairs(r53, -kF2_562, kF3_072 - kF2_562), w3),
                         add(weigh_pairs(r53, kF2_053 - kF2_562, -kF2_562), w4),
                         add(weigh_pairs(r71, kF0_298 - kF0_899, -kF0_899), w3)};
    for (int i = 0; i < 4; ++i) {
        r[i] = round_wide<shift>(add(even[i], odd[i]));
        r[7 - i] = round_wide<shift>(subtract(even[i], odd[i]));
    }
}

SLIP_INLINE void transpose(Rows (&r)[8]) {
    Rows t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = low16(r[i], r[i + 1]);
        t[i + 1] = high16(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int j = 0; j < 2; ++j) {
            u[i + 2 * j] = low32(t[i + j], t[i + j + 2]);
            u[i + 2 * j + 1] = high32(t[i + j], t[i + j + 2]);
        }
    }
    for (int i = 0; i < 4; ++i) {
        r[2 * i] = low64(u[i], u[i + 4]);
        r[2 * i + 1] = high64(u[i], u[i + 4]);
    }
}

SLIP_INLINE void idct_rows(Rows (&r)[8]) {
    idct_pass<11>(r);
    transpose(r);
    idct_pass<18>(r);
    transpose(r);
}

// Two rows of pixels, one behind the other.
SLIP_INLINE void store_two(__m128i rows, std::uint8_t* out, std::ptrdiff_t stride) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), rows);
    _mm_storeh_pi(reinterpret_cast<__m64*>(out + stride), _mm_castsi128_ps(rows));
}

SLIP_INLINE __m128i load_row(const std::int16_t* p) {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(p));
}

#if defined(__AVX2__)

// A block, its quantization and the place of its pixels.
struct Block {
    const std::int16_t* coefficients;
    const std::int16_t* quant;
    std::uint8_t* out;
    std::ptrdiff_t stride;
};

SLIP_INLINE void idct_two(const Block& a, const Block& b) {
    const auto load = [](const std::int16_t* low, const std::int16_t* high) {
        return _mm256_inserti128_si256(_mm256_castsi128_si256(load_row(low)), load_row(high), 1);
    };
    Rows r[8];
    for (int i = 0; i < 8; ++i) {
        r[i] = _mm256_mullo_epi16(load(a.coefficients + 8 * i, b.coefficients + 8 * i),
                                  load(a.quant + 8 * i, b.quant + 8 * i));
    }
    idct_rows(r);
    for (int i = 0; i < 8; i += 2) {
        const Rows two =
            _mm256_add_epi8(_mm256_packs_epi16(r[i], r[i + 1]), _mm256_set1_epi8(-128));
        store_two(_mm256_castsi256_si128(two), a.out + i * a.stride, a.stride);
        store_two(_mm256_extracti128_si256(two, 1), b.out + i * b.stride, b.stride);
    }
}

#else

SLIP_INLINE void idct_block(const std::int16_t* block, const std::int16_t* quant, std::uint8_t* out,
                            std::ptrdiff_t stride) {
    Rows r[8];
    for (int i = 0; i < 8; ++i)
        r[i] = _mm_mullo_epi16(load_row(block + 8 * i), load_row(quant + 8 * i));
    idct_rows(r);
    for (int i = 0; i < 8; i += 2) {
        const Rows two = _mm_add_epi8(_mm_packs_epi16(r[i], r[i + 1]), _mm_set1_epi8(-128));
        store_two(two, out + i * stride, stride);
    }
}

#endif

#endif

constexpr int kCornerEnd = 9;  // the first ten coefficients of the zigzag lie in the 4x4 corner

// Inverse DCT of one block after the other, in whatever way is fastest. All are done when it is
// finished.
class Transform {
  public:
    // `last` is the position of the block's last coefficient. Blocks and tables are 16-byte
    // aligned.
    SLIP_INLINE void add(const std::int16_t* block, int last, const std::int16_t* quant,
                         std::uint8_t* out, std::ptrdiff_t stride) {
        if (last == 0) return idct_flat(block[0], quant[0], out, stride);
#if defined(__ARM_NEON)
        if (last <= kCornerEnd) return idct_corner(block, quant, out, stride);
        idct_block(block, quant, out, stride);
#elif defined(__AVX2__)
        const Block next{block, quant, out, stride};
        if (waiting_.out) {
            idct_two(waiting_, next);
            waiting_.out = nullptr;
        } else {
            waiting_ = next;
        }
#else
        idct_block(block, quant, out, stride);
#endif
    }

    SLIP_INLINE void finish() {
#if !defined(__ARM_NEON) && defined(__AVX2__)
        if (waiting_.out) idct_two(waiting_, waiting_);
        waiting_.out = nullptr;
#endif
    }

#if !defined(__ARM_NEON) && defined(__AVX2__)
  private:
    Block waiting_{};
#endif
};

}  // namespace SLIP_ISA
}  // namespace slip
