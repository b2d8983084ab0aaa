// The arithmetic of libjpeg's decoder on blocks and rows, bit for bit: inverse DCT ("islow"),
// triangle upsampling, YCbCr to RGB.
#pragma once

#include <cstddef>
#include <cstdint>

#include "entropy.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__AVX2__)
#include <immintrin.h>
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

typedef std::int32_t Lanes __attribute__((vector_size(32)));

// One pass: eight independent transforms, one in each lane.
SLIP_INLINE void idct_pass(Lanes (&r)[8], int shift) {
    const Lanes e2 = r[2] * kF0_541 + r[6] * (kF0_541 - kF1_847);
    const Lanes e3 = r[6] * kF0_541 + r[2] * (kF0_541 + kF0_765);
    const Lanes e0 = (r[0] + r[4]) * 8192, e1 = (r[0] - r[4]) * 8192;
    const Lanes even[4] = {e0 + e3, e1 + e2, e1 - e2, e0 - e3};
    const Lanes z3 = r[7] + r[3], z4 = r[5] + r[1];
    const Lanes w3 = z3 * (kF1_175 - kF1_961) + z4 * kF1_175;
    const Lanes w4 = z4 * (kF1_175 - kF0_390) + z3 * kF1_175;
    const Lanes odd[4] = {w4 + r[1] * (kF1_501 - kF0_899) - r[7] * kF0_899,
                          w3 + r[3] * (kF3_072 - kF2_562) - r[5] * kF2_562,
                          w4 + r[5] * (kF2_053 - kF2_562) - r[3] * kF2_562,
                          w3 + r[7] * (kF0_298 - kF0_899) - r[1] * kF0_899};
    const int half = 1 << (shift - 1);
    for (int i = 0; i < 4; ++i) {
        r[i] = (even[i] + odd[i] + half) >> shift;
        r[7 - i] = (even[i] - odd[i] + half) >> shift;
    }
}

SLIP_INLINE void transpose(Lanes (&r)[8]) {
    Lanes t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int j = 0; j < 2; ++j) {
            u[i + 2 * j] =
                __builtin_shufflevector(t[i + j], t[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            u[i + 2 * j + 1] =
                __builtin_shufflevector(t[i + j], t[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    }
    for (int i = 0; i < 4; ++i) {
        r[i] = __builtin_shufflevector(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = __builtin_shufflevector(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

SLIP_INLINE void idct_block(const std::int16_t* block, const std::int16_t* quant, std::uint8_t* out,
                            std::ptrdiff_t stride) {
    Lanes r[8];
    for (int i = 0; i < 8; ++i) {
        typedef std::int16_t Row __attribute__((vector_size(16)));
        Row coefficients, factors;
        std::memcpy(&coefficients, block + 8 * i, 16);
        std::memcpy(&factors, quant + 8 * i, 16);
        typedef std::uint16_t Wrapping __attribute__((vector_size(16)));
        r[i] = __builtin_convertvector((Row)((Wrapping)coefficients * (Wrapping)factors), Lanes);
    }
    idct_pass(r, 11);
    transpose(r);
    idct_pass(r, 18);
    transpose(r);
    for (int i = 0; i < 8; ++i) {
        Lanes level = r[i] + 128;
        level &= level > 0;
        level |= level > 255;  // all ones: the conversion keeps the low byte, 255
        typedef std::uint8_t Pixels __attribute__((vector_size(8)));
        const Pixels pixels = __builtin_convertvector(level, Pixels);
        std::memcpy(out + i * stride, &pixels, 8);
    }
}

SLIP_INLINE void idct_corner(const std::int16_t* block, const std::int16_t* quant,
                             std::uint8_t* out, std::ptrdiff_t stride) {
    idct_block(block, quant, out, stride);
}

#endif

constexpr int kCornerEnd = 9;  // the first ten coefficients of the zigzag lie in the 4x4 corner

// Column sums for the triangle filter: samples themselves, or three parts of a row and one of its
// neighbour.
SLIP_INLINE void column_sums(const std::uint8_t* row, const std::uint8_t* near, int count,
                             std::uint16_t* sums) {
    if (!near) {
        for (int i = 0; i < count; ++i) sums[i] = row[i];
    } else {
        for (int i = 0; i < count; ++i) sums[i] = static_cast<std::uint16_t>(3 * row[i] + near[i]);
    }
}

// sums[-1] and sums[count] exist. Bias and shift: 1, 2, 2 for one direction; 8, 7, 4 for both.
template <int left_bias, int right_bias, int shift>
SLIP_INLINE void widen(const std::uint16_t* sums, int count, std::uint8_t* out) {
    for (int i = 0; i < count; ++i) {
        const int here = 3 * sums[i];
        out[2 * i] = static_cast<std::uint8_t>((here + sums[i - 1] + left_bias) >> shift);
        out[2 * i + 1] = static_cast<std::uint8_t>((here + sums[i + 1] + right_bias) >> shift);
    }
}

SLIP_INLINE void blend_rows(const std::uint8_t* row, const std::uint8_t* near, int count, int bias,
                            std::uint8_t* out) {
    for (int i = 0; i < count; ++i)
        out[i] = static_cast<std::uint8_t>((3 * row[i] + near[i] + bias) >> 2);
}

SLIP_INLINE std::uint8_t clamp_byte(int value) {
    return static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

#if defined(__ARM_NEON)

struct Rgb {
    uint8x8_t red, green, blue;
};

SLIP_INLINE Rgb ycc_to_rgb8(uint8x8_t y, uint8x8_t cb, uint8x8_t cr) {
    const uint8x8_t middle = vdup_n_u8(128);
    const int16x8_t luma = vreinterpretq_s16_u16(vmovl_u8(y));
    const int16x8_t b = vreinterpretq_s16_u16(vsubl_u8(cb, middle)),
                    r = vreinterpretq_s16_u16(vsubl_u8(cr, middle));
    const int16x8_t red =
        vqrdmulhq_n_s16(r, 13173);  // 26345 / 2 and a half: the same for all 256 values
    const int16x8_t green = vcombine_s16(
        vrshrn_n_s32(vmlal_n_s16(vmull_n_s16(vget_low_s16(b), -22554), vget_low_s16(r), 18734), 16),
        vrshrn_n_s32(vmlal_n_s16(vmull_n_s16(vget_high_s16(b), -22554), vget_high_s16(r), 18734),
                     16));
    const int16x8_t blue = vqrdmulhq_n_s16(b, -7471);
    return {vqmovun_s16(vaddq_s16(vaddq_s16(luma, r), red)),
            vqmovun_s16(vaddq_s16(vsubq_s16(luma, r), green)),
            vqmovun_s16(vaddq_s16(vaddq_s16(luma, vaddq_s16(b, b)), blue))};
}

#elif defined(__AVX2__)

// Three vectors of 16 samples into 48 bytes, one of each in turn.
SLIP_INLINE void store_interleaved(__m128i a, __m128i b, __m128i c, std::uint8_t* out) {
    constexpr char z = -1;
    const auto put = [&](int at, __m128i from_a, __m128i from_b, __m128i from_c) {
        const __m128i bytes =
            _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, from_a), _mm_shuffle_epi8(b, from_b)),
                         _mm_shuffle_epi8(c, from_c));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + at), bytes);
    };
    put(0, _mm_setr_epi8(0, z, z, 1, z, z, 2, z, z, 3, z, z, 4, z, z, 5),
        _mm_setr_epi8(z, 0, z, z, 1, z, z, 2, z, z, 3, z, z, 4, z, z),
        _mm_setr_epi8(z, z, 0, z, z, 1, z, z, 2, z, z, 3, z, z, 4, z));
    put(16, _mm_setr_epi8(z, z, 6, z, z, 7, z, z, 8, z, z, 9, z, z, 10, z),
        _mm_setr_epi8(5, z, z, 6, z, z, 7, z, z, 8, z, z, 9, z, z, 10),
        _mm_setr_epi8(z, 5, z, z, 6, z, z, 7, z, z, 8, z, z, 9, z, z));
    put(32, _mm_setr_epi8(z, 11, z, z, 12, z, z, 13, z, z, 14, z, z, 15, z, z),
        _mm_setr_epi8(z, z, 11, z, z, 12, z, z, 13, z, z, 14, z, z, 15, z),
        _mm_setr_epi8(10, z, z, 11, z, z, 12, z, z, 13, z, z, 14, z, z, 15));
}

SLIP_INLINE void ycc_to_rgb16(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr,
                              std::uint8_t* red_out, std::uint8_t* green_out,
                              std::uint8_t* blue_out) {
    const auto load = [](const std::uint8_t* p) {
        return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    };
    const __m256i middle = _mm256_set1_epi16(128);
    const __m256i luma = load(y), b = _mm256_sub_epi16(load(cb), middle),
                  r = _mm256_sub_epi16(load(cr), middle);
    // Pairs (x, w) times (f, g) give x*f + w*g in 32 bits.
    const auto weigh = [](__m256i x, __m256i w, int factors, int extra) {
        const __m256i f = _mm256_set1_epi32(factors), e = _mm256_set1_epi32(extra);
        const __m256i low = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi16(x, w), f), e);
        const __m256i high = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpackhi_epi16(x, w), f), e);
        return _mm256_packs_epi32(_mm256_srai_epi32(low, 16), _mm256_srai_epi32(high, 16));
    };
    const auto pair = [](int x, int w) {
        return static_cast<int>(static_cast<std::uint32_t>(w) << 16 | (x & 0xFFFF));
    };
    const __m256i red = weigh(r, r, pair(26345, 0), 32768);
    const __m256i green = weigh(b, r, pair(-22554, 18734), 32768);
    const __m256i blue = _mm256_mulhrs_epi16(b, _mm256_set1_epi16(-7471));
    const auto store = [](__m256i v, std::uint8_t* out) {
        const __m128i bytes =
            _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
    };
    store(_mm256_add_epi16(_mm256_add_epi16(luma, r), red), red_out);
    store(_mm256_add_epi16(_mm256_sub_epi16(luma, r), green), green_out);
    store(_mm256_add_epi16(_mm256_add_epi16(luma, _mm256_add_epi16(b, b)), blue), blue_out);
}

#endif

// 16-bit fixed point, whole parts taken out of the factors: 1.402 = 1 + 26345/65536, 1.772 = 2 -
// 14942/65536, 0.71414 = 1 - 18734/65536. Up to 15 bytes behind `count` are read and written.
inline void ycc_to_rgb(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr,
                       int count, std::uint8_t* red, std::uint8_t* green, std::uint8_t* blue) {
#if defined(__ARM_NEON)
    for (int i = 0; i < count; i += 16) {
        const uint8x16_t ys = vld1q_u8(y + i), bs = vld1q_u8(cb + i), rs = vld1q_u8(cr + i);
        const Rgb low = ycc_to_rgb8(vget_low_u8(ys), vget_low_u8(bs), vget_low_u8(rs));
        const Rgb high = ycc_to_rgb8(vget_high_u8(ys), vget_high_u8(bs), vget_high_u8(rs));
        vst1q_u8(red + i, vcombine_u8(low.red, high.red));
        vst1q_u8(green + i, vcombine_u8(low.green, high.green));
        vst1q_u8(blue + i, vcombine_u8(low.blue, high.blue));
    }
#elif defined(__AVX2__)
    for (int i = 0; i < count; i += 16)
        ycc_to_rgb16(y + i, cb + i, cr + i, red + i, green + i, blue + i);
#else
    for (int i = 0; i < count; ++i) {
        const int luma = y[i], b = cb[i] - 128, r = cr[i] - 128;
        red[i] = clamp_byte(luma + r + ((26345 * r + 32768) >> 16));
        green[i] = clamp_byte(luma - r + ((-22554 * b + 18734 * r + 32768) >> 16));
        blue[i] = clamp_byte(luma + 2 * b + ((-14942 * b + 32768) >> 16));
    }
#endif
}

// Three rows into one of RGB pixels, exactly `count` of them.
inline void interleave(const std::uint8_t* a, const std::uint8_t* b, const std::uint8_t* c,
                       int count, std::uint8_t* out) {
    int i = 0;
#if defined(__ARM_NEON)
    for (; i + 16 <= count; i += 16) {
        const uint8x16x3_t pixels{{vld1q_u8(a + i), vld1q_u8(b + i), vld1q_u8(c + i)}};
        vst3q_u8(out + 3 * i, pixels);  // a macro with Clang: no commas in its arguments
    }
#elif defined(__AVX2__)
    const auto load = [](const std::uint8_t* p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    };
    for (; i + 16 <= count; i += 16)
        store_interleaved(load(a + i), load(b + i), load(c + i), out + 3 * i);
#endif
    for (; i < count; ++i) {
        out[3 * i] = a[i];
        out[3 * i + 1] = b[i];
        out[3 * i + 2] = c[i];
    }
}

// The way back.
inline void separate(const std::uint8_t* pixels, int count, std::uint8_t* a, std::uint8_t* b,
                     std::uint8_t* c) {
    int i = 0;
#if defined(__ARM_NEON)
    for (; i + 16 <= count; i += 16) {
        const uint8x16x3_t three = vld3q_u8(pixels + 3 * i);
        vst1q_u8(a + i, three.val[0]);
        vst1q_u8(b + i, three.val[1]);
        vst1q_u8(c + i, three.val[2]);
    }
#endif
    for (; i < count; ++i) {
        a[i] = pixels[3 * i];
        b[i] = pixels[3 * i + 1];
        c[i] = pixels[3 * i + 2];
    }
}

}  // namespace SLIP_ISA
}  // namespace slip
