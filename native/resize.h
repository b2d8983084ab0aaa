// The two passes of Pillow's resize on RGB rows. See resize_weights.h for the numbers they use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "entropy.h"
#include "resize_weights.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#endif

namespace slip {
namespace SLIP_ISA {

SLIP_INLINE std::uint8_t round_weighted(std::int32_t sum) {
    const int value = (sum + (1 << (kWeightBits - 1))) >> kWeightBits;
    return static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Any weights, any machine.
inline void horizontal_plain(const std::uint8_t* row, const Axis& axis, bool mirror,
                             std::uint8_t* out) {
    for (int o = 0; o < axis.output; ++o, out += 3) {
        const int i = mirror ? axis.output - 1 - o : o;
        const std::int32_t* weights = axis.weights + static_cast<std::size_t>(i) * axis.taps;
        const std::uint8_t* pixel = row + std::size_t{3} * axis.first[i];
        std::int32_t red = 0, green = 0, blue = 0;
        for (int t = 0; t < axis.taps; ++t, pixel += 3) {
            red += pixel[0] * weights[t];
            green += pixel[1] * weights[t];
            blue += pixel[2] * weights[t];
        }
        out[0] = round_weighted(red);
        out[1] = round_weighted(green);
        out[2] = round_weighted(blue);
    }
}

inline void vertical_plain(const std::uint8_t* rows, std::size_t stride,
                           const std::int32_t* weights, int taps, int begin, int count,
                           std::uint8_t* out) {
    for (int x = begin; x < count; ++x) {
        std::int32_t sum = 0;
        for (int t = 0; t < taps; ++t) sum += rows[t * stride + x] * weights[t];
        out[x] = round_weighted(sum);
    }
}

#if defined(__ARM_FEATURE_DOTPROD)

// Sums of the three bytes of the weights, put together; wraps around as 32-bit integers do, like
// the sum it stands for.
template <bool negative>
SLIP_INLINE int32x4_t join(uint32x4_t low, uint32x4_t middle, uint32x4_t high, uint32x4_t plain) {
    uint32x4_t sum = vaddq_u32(low, vshlq_n_u32(middle, 8));
    sum = vaddq_u32(sum, vshlq_n_u32(high, 16));
    if constexpr (negative) sum = vsubq_u32(sum, vshlq_n_u32(plain, kWeightBits));
    return vreinterpretq_s32_u32(sum);
}

// One output pixel, its three channels in three lanes. Four taps at once: the bytes of a channel
// stand together in one lane. Reads 16 bytes from each group's first pixel on. `fixed_groups` is 0
// where the number is not known beforehand.
template <bool negative, int fixed_groups>
SLIP_INLINE uint16x4_t dot_pixel(const std::uint8_t* pixels, const std::uint32_t* words, int groups,
                                 uint8x16_t by_channel) {
    uint32x4_t low = vdupq_n_u32(0), middle = low, high = low, plain = low;
    const int count = fixed_groups ? fixed_groups : groups;
    for (int g = 0; g < count; ++g, pixels += 12, words += kGroupWords) {
        const uint8x16_t taps = vqtbl1q_u8(vld1q_u8(pixels), by_channel);
        const uint8x16_t weights = vreinterpretq_u8_u32(vld1q_u32(words));
        low = vdotq_laneq_u32(low, taps, weights, 0);
        middle = vdotq_laneq_u32(middle, taps, weights, 1);
        high = vdotq_laneq_u32(high, taps, weights, 2);
        if constexpr (negative) plain = vdotq_u32(plain, taps, vdupq_n_u8(1));
    }
    return vqmovun_s32(vrshrq_n_s32(join<negative>(low, middle, high, plain), kWeightBits));
}

// Four output pixels a step; those of a last, incomplete step behind the row's end too.
template <bool negative, int fixed_groups>
inline void horizontal_dot(const std::uint8_t* row, const Axis& axis, bool mirror,
                           std::uint8_t* out) {
    static const std::uint8_t channel_order[16] = {0, 3, 6, 9,  1,   4,   7,   10,
                                                   2, 5, 8, 11, 255, 255, 255, 255};
    static const std::uint8_t pack_order[16] = {0,  1,  2,  4,  5,   6,   8,   9,
                                                10, 12, 13, 14, 255, 255, 255, 255};
    const uint8x16_t by_channel = vld1q_u8(channel_order), packed = vld1q_u8(pack_order);
    // Copies: a store through `out` could change `axis` for all the compiler knows.
    const int output = axis.output, groups = fixed_groups ? fixed_groups : axis.taps / kTapGroup;
    const std::int32_t* const first = axis.first;
    const std::uint32_t* const split = axis.split;
    const auto pixel = [&](std::ptrdiff_t i) {
        return dot_pixel<negative, fixed_groups>(row + 3 * static_cast<std::ptrdiff_t>(first[i]),
                                                 split + i * groups * kGroupWords, groups,
                                                 by_channel);
    };
    const auto store = [&](uint16x4_t a, uint16x4_t b, uint16x4_t c, uint16x4_t d) {
        const uint8x16_t bytes =
            vcombine_u8(vqmovn_u16(vcombine_u16(a, b)), vqmovn_u16(vcombine_u16(c, d)));
        vst1q_u8(out, vqtbl1q_u8(bytes, packed));
        out += 12;
    };
    const std::ptrdiff_t step = mirror ? -1 : 1;
    std::ptrdiff_t i = mirror ? output - 1 : 0;
    int left = output;
    for (; left >= 4; left -= 4, i += 4 * step)
        store(pixel(i), pixel(i + step), pixel(i + 2 * step), pixel(i + 3 * step));
    if (left > 0)
        store(pixel(i), pixel(left > 1 ? i + step : i), pixel(left > 2 ? i + 2 * step : i),
              pixel(i));
}

template <bool negative>
inline void horizontal_dot(const std::uint8_t* row, const Axis& axis, bool mirror,
                           std::uint8_t* out) {
    switch (axis.taps / kTapGroup) {
        case 1: return horizontal_dot<negative, 1>(row, axis, mirror, out);
        case 2: return horizontal_dot<negative, 2>(row, axis, mirror, out);
        default: return horizontal_dot<negative, 0>(row, axis, mirror, out);
    }
}

// Sixteen columns at once: four rows are woven so that the taps of a column stand together.
template <bool negative>
inline int vertical_dot(const std::uint8_t* rows, std::size_t stride, const std::uint32_t* split,
                        int groups, int count, std::uint8_t* out) {
    const uint8x16_t ones = vdupq_n_u8(1);
    int x = 0;
    for (; x + 16 <= count; x += 16) {
        uint32x4_t low[4], middle[4], high[4], plain[4];
        for (int q = 0; q < 4; ++q) low[q] = middle[q] = high[q] = plain[q] = vdupq_n_u32(0);
        const std::uint8_t* row = rows + x;
        const std::uint32_t* words = split;
        for (int g = 0; g < groups; ++g, row += 4 * stride, words += kGroupWords) {
            const uint8x16_t a = vld1q_u8(row), b = vld1q_u8(row + stride),
                             c = vld1q_u8(row + 2 * stride), d = vld1q_u8(row + 3 * stride);
            const uint8x16_t ac0 = vzip1q_u8(a, c), ac1 = vzip2q_u8(a, c), bd0 = vzip1q_u8(b, d),
                             bd1 = vzip2q_u8(b, d);
            const uint8x16_t taps[4] = {vzip1q_u8(ac0, bd0), vzip2q_u8(ac0, bd0),
                                        vzip1q_u8(ac1, bd1), vzip2q_u8(ac1, bd1)};
            const uint8x16_t weights = vreinterpretq_u8_u32(vld1q_u32(words));
            for (int q = 0; q < 4; ++q) {
                low[q] = vdotq_laneq_u32(low[q], taps[q], weights, 0);
                middle[q] = vdotq_laneq_u32(middle[q], taps[q], weights, 1);
                high[q] = vdotq_laneq_u32(high[q], taps[q], weights, 2);
                if constexpr (negative) plain[q] = vdotq_u32(plain[q], taps[q], ones);
            }
        }
        uint16x4_t level[4];
        for (int q = 0; q < 4; ++q) {
            level[q] = vqmovun_s32(
                vrshrq_n_s32(join<negative>(low[q], middle[q], high[q], plain[q]), kWeightBits));
        }
        vst1q_u8(out + x, vcombine_u8(vqmovn_u16(vcombine_u16(level[0], level[1])),
                                      vqmovn_u16(vcombine_u16(level[2], level[3]))));
    }
    return x;
}

#elif defined(__AVX2__)

// One output pixel in 32-bit lanes, red green blue nothing. Four taps at once: taps 0 and 1 stand
// in the lower half, 2 and 3 in the upper.
template <int fixed_groups>
SLIP_INLINE __m128i madd_pixel(const std::uint8_t* pixels, const std::uint32_t* words, int groups,
                               __m256i by_channel, __m256i spread) {
    __m256i low = _mm256_setzero_si256(), high = low;
    const int count = fixed_groups ? fixed_groups : groups;
    for (int g = 0; g < count; ++g, pixels += 12, words += kGroupWords) {
        const __m256i four =
            _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels)));
        const __m256i taps = _mm256_shuffle_epi8(four, by_channel);
        const __m256i weights =
            _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(words)));
        low = _mm256_add_epi32(
            low, _mm256_madd_epi16(taps, _mm256_permutevar8x32_epi32(weights, spread)));
        high = _mm256_add_epi32(
            high, _mm256_madd_epi16(
                      taps, _mm256_permutevar8x32_epi32(_mm256_srli_si256(weights, 8), spread)));
    }
    const __m256i sum = _mm256_add_epi32(low, _mm256_slli_epi32(high, kLowBits));
    const __m128i both =
        _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    return _mm_srai_epi32(_mm_add_epi32(both, _mm_set1_epi32(1 << (kWeightBits - 1))), kWeightBits);
}

template <int fixed_groups>
inline void horizontal_madd(const std::uint8_t* row, const Axis& axis, bool mirror,
                            std::uint8_t* out) {
    constexpr char z = -1;
    const __m256i by_channel = _mm256_setr_epi8(0, z, 3, z, 1, z, 4, z, 2, z, 5, z, z, z, z, z,  //
                                                6, z, 9, z, 7, z, 10, z, 8, z, 11, z, z, z, z, z);
    const __m256i spread = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    const __m128i packed = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, z, z, z, z);
    // Copies: a store through `out` could change `axis` for all the compiler knows.
    const int output = axis.output, groups = fixed_groups ? fixed_groups : axis.taps / kTapGroup;
    const std::int32_t* const first = axis.first;
    const std::uint32_t* const split = axis.split;
    const auto pixel = [&](std::ptrdiff_t i) {
        return madd_pixel<fixed_groups>(row + 3 * static_cast<std::ptrdiff_t>(first[i]),
                                        split + i * groups * kGroupWords, groups, by_channel,
                                        spread);
    };
    const auto store = [&](__m128i a, __m128i b, __m128i c, __m128i d) {
        const __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_shuffle_epi8(bytes, packed));
        out += 12;
    };
    const std::ptrdiff_t step = mirror ? -1 : 1;
    std::ptrdiff_t i = mirror ? output - 1 : 0;
    int left = output;
    for (; left >= 4; left -= 4, i += 4 * step)
        store(pixel(i), pixel(i + step), pixel(i + 2 * step), pixel(i + 3 * step));
    if (left > 0)
        store(pixel(i), pixel(left > 1 ? i + step : i), pixel(left > 2 ? i + 2 * step : i),
              pixel(i));
}

inline void horizontal_madd(const std::uint8_t* row, const Axis& axis, bool mirror,
                            std::uint8_t* out) {
    switch (axis.taps / kTapGroup) {
        case 1: return horizontal_madd<1>(row, axis, mirror, out);
        case 2: return horizontal_madd<2>(row, axis, mirror, out);
        default: return horizontal_madd<0>(row, axis, mirror, out);
    }
}

// Sixteen columns at once, two rows woven into pairs of taps.
inline int vertical_madd(const std::uint8_t* rows, std::size_t stride, const std::uint32_t* split,
                         int groups, int count, std::uint8_t* out) {
    const auto load = [](const std::uint8_t* p) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    };
    const auto level = [](__m256i low, __m256i high) {
        const __m256i sum = _mm256_add_epi32(low, _mm256_slli_epi32(high, kLowBits));
        return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << (kWeightBits - 1))),
                                 kWeightBits);
    };
    int x = 0;
    for (; x + 16 <= count; x += 16) {
        __m256i low[2], high[2];
        low[0] = low[1] = high[0] = high[1] = _mm256_setzero_si256();
        const std::uint8_t* row = rows + x;
        const std::uint32_t* words = split;
        for (int g = 0; g < groups; ++g, words += kGroupWords) {
            for (int pair = 0; pair < 2; ++pair, row += 2 * stride) {
                const __m128i a = load(row), b = load(row + stride);
                const __m256i taps[2] = {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)),
                                         _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b))};
                const __m256i weights_low = _mm256_set1_epi32(static_cast<int>(words[pair]));
                const __m256i weights_high = _mm256_set1_epi32(static_cast<int>(words[2 + pair]));
                for (int half = 0; half < 2; ++half) {
                    low[half] =
                        _mm256_add_epi32(low[half], _mm256_madd_epi16(taps[half], weights_low));
                    high[half] =
                        _mm256_add_epi32(high[half], _mm256_madd_epi16(taps[half], weights_high));
                }
            }
        }
        const __m256i wide = _mm256_packs_epi32(level(low[0], high[0]), level(low[1], high[1]));
        const __m256i ordered = _mm256_permute4x64_epi64(wide, 0xD8);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x),
                         _mm_packus_epi16(_mm256_castsi256_si128(ordered),
                                          _mm256_extracti128_si256(ordered, 1)));
    }
    return x;
}

#endif

// Resizes a row of axis.input RGB pixels. Behind it axis.taps pixels and 16 bytes may be read,
// behind the output 16 bytes written.
inline void horizontal_pass(const std::uint8_t* row, const Axis& axis, bool mirror,
                            std::uint8_t* out) {
#if defined(__ARM_FEATURE_DOTPROD)
    if (axis.split_fits) {
        return axis.negative ? horizontal_dot<true>(row, axis, mirror, out)
                             : horizontal_dot<false>(row, axis, mirror, out);
    }
#elif defined(__AVX2__)
    if (axis.split_fits) return horizontal_madd(row, axis, mirror, out);
#endif
    horizontal_plain(row, axis, mirror, out);
}

// One output row from the rows that start at rows + first * stride. axis.taps rows from there on
// must be readable.
inline void vertical_row(const std::uint8_t* rows, std::size_t stride, const Axis& axis, int output,
                         int count, std::uint8_t* out) {
    const std::uint8_t* start = rows + static_cast<std::size_t>(axis.first[output]) * stride;
    const std::int32_t* weights = axis.weights + static_cast<std::size_t>(output) * axis.taps;
    int done = 0;
#if defined(__ARM_FEATURE_DOTPROD)
    if (axis.split_fits) {
        const int groups = axis.taps / kTapGroup;
        const std::uint32_t* split =
            axis.split + static_cast<std::size_t>(output) * groups * kGroupWords;
        done = axis.negative ? vertical_dot<true>(start, stride, split, groups, count, out)
                             : vertical_dot<false>(start, stride, split, groups, count, out);
    }
#elif defined(__AVX2__)
    if (axis.split_fits) {
        const int groups = axis.taps / kTapGroup;
        done = vertical_madd(start, stride,
                             axis.split + static_cast<std::size_t>(output) * groups * kGroupWords,
                             groups, count, out);
    }
#endif
    vertical_plain(start, stride, weights, axis.taps, done, count, out);
}

}  // namespace SLIP_ISA
}  // namespace slip
