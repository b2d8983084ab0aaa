// The arithmetic of libjpeg's decoder on rows, bit for bit: triangle upsampling, YCbCr to RGB.
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

#if !defined(__ARM_NEON) && defined(__AVX2__)

// Where the samples of channel c lie in three vectors of 16 interleaved bytes: per vector, which
// byte goes where.
struct SeparateMasks {
    alignas(16) std::int8_t of[3][3][16];

    constexpr SeparateMasks() : of() {
        for (int c = 0; c < 3; ++c) {
            for (int v = 0; v < 3; ++v) {
                for (int i = 0; i < 16; ++i) {
                    const int position = 3 * i + c - 16 * v;
                    of[c][v][i] =
                        static_cast<std::int8_t>(position >= 0 && position < 16 ? position : -1);
                }
            }
        }
    }
};

inline constexpr SeparateMasks kSeparateMasks;

SLIP_INLINE __m128i separate_channel(const __m128i (&pixels)[3], int c) {
    __m128i samples = _mm_setzero_si128();
    for (int v = 0; v < 3; ++v) {
        const __m128i mask =
            _mm_load_si128(reinterpret_cast<const __m128i*>(kSeparateMasks.of[c][v]));
        samples = _mm_or_si128(samples, _mm_shuffle_epi8(pixels[v], mask));
    }
    return samples;
}

#endif

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
#elif defined(__AVX2__)
    for (; i + 16 <= count; i += 16) {
        __m128i three[3];
        for (int v = 0; v < 3; ++v) {
            three[v] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels + 3 * i + 16 * v));
        }
        _mm_storeu_si128(reinterpret_cast<__m128i*>(a + i), separate_channel(three, 0));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(b + i), separate_channel(three, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(c + i), separate_channel(three, 2));
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
