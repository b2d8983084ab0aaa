// The two passes of Pillow's resize on rows of bytes. See resize_weights.h for the numbers they
// use.
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
inline void across_plain(const std::uint8_t* row, const Axis& axis, std::uint8_t* out) {
    const int output = axis.output, taps = axis.taps;
    for (int i = 0; i < output; ++i) {
        const std::int32_t* weights = axis.weights + static_cast<std::size_t>(i) * taps;
        const std::uint8_t* in = row + axis.first[i];
        std::int32_t sum = 0;
        for (int t = 0; t < taps; ++t) sum += in[t] * weights[t];
        out[i] = round_weighted(sum);
    }
}

inline void down_plain(const std::uint8_t* rows, std::size_t stride, const Axis& axis, int output,
                       int count, std::uint8_t* out) {
    const std::int32_t* weights = axis.weights + static_cast<std::size_t>(output) * axis.taps;
    const int taps = axis.taps;
    for (int x = 0; x < count; ++x) {
        std::int32_t sum = 0;
        for (int t = 0; t < taps; ++t) sum += rows[t * stride + x] * weights[t];
        out[x] = round_weighted(sum);
    }
}

#if defined(__ARM_FEATURE_DOTPROD)

// Shifts every 32-bit lane right by a byte. A table lookup, because both vector pipes can do one
// and only one of them shifts.
SLIP_INLINE uint32x4_t drop_byte(uint32x4_t v) {
    static const std::uint8_t order[16] = {1, 2,  3,  255, 5,  6,  7,  255,
                                           9, 10, 11, 255, 13, 14, 15, 255};
    return vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(v), vld1q_u8(order)));
}

// Weighted sums of four outputs from the split weights: low bytes, then the middle ones on top,
// then the high ones. Dropping a byte each time floors step by step, which is the same as flooring
// at the end. `dot(sum, g, byte)` adds group g of the taps, `plain(sum, g)` the samples alone,
// which is what the bias of negative weights has added. Feed the result to `pack`.
template <bool negative, class Dot, class Plain>
SLIP_INLINE uint32x4_t weigh(int groups, Dot dot, Plain plain) {
    uint32x4_t sum = vdupq_n_u32(negative ? 0 : 1 << 23);
    for (int g = 0; g < groups; ++g) sum = dot(sum, g, 0);
    sum = drop_byte(sum);
    for (int g = 0; g < groups; ++g) sum = dot(sum, g, 1);
    sum = drop_byte(sum);
    for (int g = 0; g < groups; ++g) sum = dot(sum, g, 2);
    if constexpr (negative) {
        uint32x4_t samples = vdupq_n_u32(0);
        for (int g = 0; g < groups; ++g) samples = plain(samples, g);
        sum = vsubq_u32(sum, vshlq_n_u32(samples, kWeightBits - 16));
    }
    return sum;
}

// Sixteen outputs. Without negative weights the result is already rounded, in range, and stands in
// each lane's second byte.
template <bool negative>
SLIP_INLINE uint8x16_t pack(const uint32x4_t (&sums)[4]) {
    if constexpr (negative) {
        uint16x4_t level[4];
        for (int q = 0; q < 4; ++q)
            level[q] = vqrshrun_n_s32(vreinterpretq_s32_u32(sums[q]), kWeightBits - 16);
        return vcombine_u8(vqmovn_u16(vcombine_u16(level[0], level[1])),
                           vqmovn_u16(vcombine_u16(level[2], level[3])));
    }
    const auto bytes = [&](int q) { return vreinterpretq_u8_u32(sums[q]); };
    return vuzp1q_u8(vuzp2q_u8(bytes(0), bytes(1)), vuzp2q_u8(bytes(2), bytes(3)));
}

// Sixteen outputs a step, of three rows that share the weights. `fixed_groups` 0: the number of
// groups is known at run time only.
template <bool negative, int fixed_groups>
inline void across_windows(const std::uint8_t* rows, std::size_t plane, const Axis& axis,
                           std::uint8_t* out, std::size_t out_plane) {
    // Copies: a store through `out` could change `axis` for all the compiler knows.
    const int groups = fixed_groups ? fixed_groups : axis.taps / kTapGroup, output = axis.output;
    const std::int32_t* base = axis.base;
    const std::uint8_t* pick = axis.pick;
    const std::uint32_t* split = axis.split;
    for (int o = 0; o < output; o += kOutputGroup) {
        uint32x4_t sums[3][4];
        for (int q = 0; q < 4; ++q, ++base, pick += kWindow, split += groups * kAcrossWords) {
            const uint8x16_t picked = vld1q_u8(pick);
            for (int c = 0; c < 3; ++c) {
                const std::uint8_t* window = rows + c * plane + *base;
                const auto taps = [&](int g) {
                    return vqtbl1q_u8(vld1q_u8(window + g * kTapGroup), picked);
                };
                const auto weights = [&](int g, int byte) {
                    return vreinterpretq_u8_u32(vld1q_u32(split + g * kAcrossWords + 4 * byte));
                };
                sums[c][q] = weigh<negative>(
                    groups,
                    [&](uint32x4_t sum, int g, int byte) {
                        return vdotq_u32(sum, taps(g), weights(g, byte));
                    },
                    [&](uint32x4_t sum, int g) { return vdotq_u32(sum, taps(g), vdupq_n_u8(1)); });
            }
        }
        for (int c = 0; c < 3; ++c) vst1q_u8(out + c * out_plane + o, pack<negative>(sums[c]));
    }
}

// Each output by itself, sixteen taps at once, for rows that shrink a lot.
template <bool negative>
inline void across_runs(const std::uint8_t* row, const Axis& axis, std::uint8_t* out) {
    const int groups = axis.taps / kLongGroup, output = axis.output;
    const std::int32_t* first = axis.first;
    const std::uint32_t* split = axis.split;
    for (int o = 0; o < output; o += kOutputGroup) {
        uint32x4_t sums[4];
        for (int q = 0; q < 4; ++q) {
            uint32x4_t parts[4][4];  // [output][byte or plain sum]
            for (int lane = 0; lane < 4; ++lane, ++first) {
                for (int b = 0; b < 4; ++b) parts[lane][b] = vdupq_n_u32(0);
                for (int g = 0; g < groups; ++g, split += kLongWords) {
                    const uint8x16_t taps = vld1q_u8(row + *first + g * kLongGroup);
                    for (int b = 0; b < 3; ++b) {
                        parts[lane][b] = vdotq_u32(parts[lane][b], taps,
                                                   vreinterpretq_u8_u32(vld1q_u32(split + 4 * b)));
                    }
                    if constexpr (negative)
                        parts[lane][3] = vdotq_u32(parts[lane][3], taps, vdupq_n_u8(1));
                }
            }
            const auto total = [&](int b) {
                return vpaddq_u32(vpaddq_u32(parts[0][b], parts[1][b]),
                                  vpaddq_u32(parts[2][b], parts[3][b]));
            };
            sums[q] = weigh<negative>(
                1, [&](uint32x4_t sum, int, int byte) { return vaddq_u32(sum, total(byte)); },
                [&](uint32x4_t, int) { return total(3); });
        }
        vst1q_u8(out + o, pack<negative>(sums));
    }
}

// Four rows woven so that the taps of a column stand together.
struct Woven {
    uint8x16_t taps[4];
};

SLIP_INLINE Woven weave(const std::uint8_t* row, std::size_t stride) {
    const uint8x16_t a = vld1q_u8(row), b = vld1q_u8(row + stride), c = vld1q_u8(row + 2 * stride),
                     d = vld1q_u8(row + 3 * stride);
    const uint8x16_t ac0 = vzip1q_u8(a, c), ac1 = vzip2q_u8(a, c), bd0 = vzip1q_u8(b, d),
                     bd1 = vzip2q_u8(b, d);
    return {{vzip1q_u8(ac0, bd0), vzip2q_u8(ac0, bd0), vzip1q_u8(ac1, bd1), vzip2q_u8(ac1, bd1)}};
}

SLIP_INLINE uint32x4_t dot_byte(uint32x4_t sum, uint8x16_t taps, uint8x16_t weights, int byte) {
    return byte == 0   ? vdotq_laneq_u32(sum, taps, weights, 0)
           : byte == 1 ? vdotq_laneq_u32(sum, taps, weights, 1)
                       : vdotq_laneq_u32(sum, taps, weights, 2);
}

template <bool negative, int fixed_groups>
inline void down_split(const std::uint8_t* rows, std::size_t stride, const std::uint32_t* split,
                       int groups, int count, std::uint8_t* out) {
    const auto weights = [&](int g) {
        return vreinterpretq_u8_u32(vld1q_u32(split + g * kDownWords));
    };
    const auto woven_at = [&](int x, int g) {
        return weave(rows + x + static_cast<std::size_t>(g) * kTapGroup * stride, stride);
    };
    for (int x = 0; x < count; x += 16) {
        uint32x4_t sums[4];
        if constexpr (fixed_groups != 0) {
            Woven woven[fixed_groups];
            for (int g = 0; g < fixed_groups; ++g) woven[g] = woven_at(x, g);
            for (int q = 0; q < 4; ++q) {
                sums[q] = weigh<negative>(
                    fixed_groups,
                    [&](uint32x4_t sum, int g, int byte) {
                        return dot_byte(sum, woven[g].taps[q], weights(g), byte);
                    },
                    [&](uint32x4_t sum, int g) {
                        return vdotq_u32(sum, woven[g].taps[q], vdupq_n_u8(1));
                    });
            }
        } else {
            // Too many rows for the registers: sums of all three bytes in one go, put together at
            // the end.
            uint32x4_t parts[4][3], plain[4];
            for (int q = 0; q < 4; ++q)
                plain[q] = parts[q][0] = parts[q][1] = parts[q][2] = vdupq_n_u32(0);
            for (int g = 0; g < groups; ++g) {
                const Woven woven = woven_at(x, g);
                for (int q = 0; q < 4; ++q) {
                    for (int byte = 0; byte < 3; ++byte) {
                        parts[q][byte] = dot_byte(parts[q][byte], woven.taps[q], weights(g), byte);
                    }
                    if constexpr (negative)
                        plain[q] = vdotq_u32(plain[q], woven.taps[q], vdupq_n_u8(1));
                }
            }
            for (int q = 0; q < 4; ++q) {
                sums[q] = weigh<negative>(
                    1,
                    [&](uint32x4_t sum, int, int byte) { return vaddq_u32(sum, parts[q][byte]); },
                    [&](uint32x4_t, int) { return plain[q]; });
            }
        }
        vst1q_u8(out + x, pack<negative>(sums));
    }
}

#define SLIP_SPLIT_KERNELS 1

#elif defined(__AVX2__)

SLIP_INLINE __m128i load_bytes(const std::uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
SLIP_INLINE __m256i load_words(const std::uint32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

SLIP_INLINE __m256i join(__m256i low, __m256i high) {
    const __m256i sum = _mm256_add_epi32(low, _mm256_slli_epi32(high, kLowBits));
    return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << (kWeightBits - 1))),
                             kWeightBits);
}

// Two sums, of even and odd pairs of taps, for each of four outputs: lower parts of the weights and
// upper parts.
struct QuadSums {
    __m256i low, high;
};

template <int fixed_groups>
SLIP_INLINE QuadSums across_quad(const std::uint8_t* window, __m128i pick,
                                 const std::uint32_t* split, int groups) {
    QuadSums sums{_mm256_setzero_si256(), _mm256_setzero_si256()};
    const int count = fixed_groups ? fixed_groups : groups;
    for (int g = 0; g < count; ++g, window += kTapGroup, split += kAcrossWords) {
        const __m256i taps = _mm256_cvtepu8_epi16(_mm_shuffle_epi8(load_bytes(window), pick));
        sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(taps, load_words(split)));
        sums.high = _mm256_add_epi32(sums.high, _mm256_madd_epi16(taps, load_words(split + 8)));
    }
    return sums;
}

template <bool negative, int fixed_groups>
inline void across_windows(const std::uint8_t* rows, std::size_t plane, const Axis& axis,
                           std::uint8_t* out, std::size_t out_plane) {
    // Copies: a store through `out` could change `axis` for all the compiler knows.
    const int groups = fixed_groups ? fixed_groups : axis.taps / kTapGroup, output = axis.output;
    const std::int32_t* base = axis.base;
    const std::uint8_t* pick = axis.pick;
    const std::uint32_t* split = axis.split;
    const std::size_t step = static_cast<std::size_t>(groups) * kAcrossWords;
    for (int o = 0; o < output; o += 8, base += 2, pick += 2 * kWindow, split += 2 * step) {
        const __m128i pick_a = load_bytes(pick), pick_b = load_bytes(pick + kWindow);
        for (int c = 0; c < 3; ++c) {
            const std::uint8_t* row = rows + c * plane;
            const QuadSums a = across_quad<fixed_groups>(row + base[0], pick_a, split, groups);
            const QuadSums b =
                across_quad<fixed_groups>(row + base[1], pick_b, split + step, groups);
            // hadd works in 128-bit halves: outputs 0 1 of a, 0 1 of b, 2 3 of a, 2 3 of b.
            const __m256i levels =
                join(_mm256_hadd_epi32(a.low, b.low), _mm256_hadd_epi32(a.high, b.high));
            const __m256i ordered = _mm256_permute4x64_epi64(levels, 0xD8);
            const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(ordered),
                                                  _mm256_extracti128_si256(ordered, 1));
            _mm_storel_epi64(reinterpret_cast<__m128i*>(out + c * out_plane + o),
                             _mm_packus_epi16(words, words));
        }
    }
}

// Each output by itself, sixteen taps at once, for rows that shrink a lot.
template <bool negative>
inline void across_runs(const std::uint8_t* row, const Axis& axis, std::uint8_t* out) {
    const int groups = axis.taps / kLongGroup, output = axis.output;
    const std::int32_t* first = axis.first;
    const std::uint32_t* split = axis.split;
    for (int o = 0; o < output; o += 4) {
        __m256i low[4], high[4];
        for (int lane = 0; lane < 4; ++lane, ++first) {
            low[lane] = high[lane] = _mm256_setzero_si256();
            for (int g = 0; g < groups; ++g, split += kLongWords) {
                const __m256i taps =
                    _mm256_cvtepu8_epi16(load_bytes(row + *first + g * kLongGroup));
                low[lane] = _mm256_add_epi32(low[lane], _mm256_madd_epi16(taps, load_words(split)));
                high[lane] =
                    _mm256_add_epi32(high[lane], _mm256_madd_epi16(taps, load_words(split + 8)));
            }
        }
        const auto total = [](const __m256i(&v)[4]) {
            return _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
        };
        const __m256i lows = total(low), highs = total(high);
        const auto halves = [](__m256i v) {
            return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        };
        const __m256i levels =
            join(_mm256_castsi128_si256(halves(lows)), _mm256_castsi128_si256(halves(highs)));
        const __m128i words =
            _mm_packs_epi32(_mm256_castsi256_si128(levels), _mm256_castsi256_si128(levels));
        const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
        std::memcpy(out + o, &bytes, 4);
    }
}

// Two rows are woven into pairs of taps.
template <bool negative, int fixed_groups>
inline void down_split(const std::uint8_t* rows, std::size_t stride, const std::uint32_t* split,
                       int groups, int count, std::uint8_t* out) {
    if constexpr (fixed_groups != 0) groups = fixed_groups;
    for (int x = 0; x < count; x += 16) {
        __m256i low[2], high[2];
        low[0] = low[1] = high[0] = high[1] = _mm256_setzero_si256();
        const std::uint8_t* row = rows + x;
        const std::uint32_t* words = split;
        for (int g = 0; g < groups; ++g, words += kDownWords) {
            for (int pair = 0; pair < 2; ++pair, row += 2 * stride) {
                const __m128i a = load_bytes(row), b = load_bytes(row + stride);
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
        const __m256i wide = _mm256_packs_epi32(join(low[0], high[0]), join(low[1], high[1]));
        const __m256i ordered = _mm256_permute4x64_epi64(wide, 0xD8);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x),
                         _mm_packus_epi16(_mm256_castsi256_si128(ordered),
                                          _mm256_extracti128_si256(ordered, 1)));
    }
}

#define SLIP_SPLIT_KERNELS 1

#endif

#if defined(SLIP_SPLIT_KERNELS)

template <bool negative>
inline void across_windows(const std::uint8_t* rows, std::size_t plane, const Axis& axis,
                           std::uint8_t* out, std::size_t out_plane) {
    switch (axis.taps / kTapGroup) {
        case 1: return across_windows<negative, 1>(rows, plane, axis, out, out_plane);
        case 2: return across_windows<negative, 2>(rows, plane, axis, out, out_plane);
        default: return across_windows<negative, 0>(rows, plane, axis, out, out_plane);
    }
}

template <bool negative>
inline void down_split(const std::uint8_t* rows, std::size_t stride, const Axis& axis, int output,
                       int count, std::uint8_t* out) {
    const int groups = axis.taps / kTapGroup;
    const std::uint32_t* split =
        axis.split + static_cast<std::size_t>(output) * groups * kDownWords;
    switch (groups) {
        case 1: return down_split<negative, 1>(rows, stride, split, groups, count, out);
        case 2: return down_split<negative, 2>(rows, stride, split, groups, count, out);
        default: return down_split<negative, 0>(rows, stride, split, groups, count, out);
    }
}

#endif

// Resizes three rows of axis.input bytes, `plane` apart. Behind each axis.taps + kWindow bytes may
// be read; outputs are written up to the next multiple of kOutputGroup.
inline void across_pass(const std::uint8_t* rows, std::size_t plane, const Axis& axis,
                        std::uint8_t* out, std::size_t out_plane) {
#if defined(SLIP_SPLIT_KERNELS)
    if (axis.way == Split::windows) {
        return axis.negative ? across_windows<true>(rows, plane, axis, out, out_plane)
                             : across_windows<false>(rows, plane, axis, out, out_plane);
    }
    if (axis.way == Split::runs) {
        for (int c = 0; c < 3; ++c) {
            axis.negative ? across_runs<true>(rows + c * plane, axis, out + c * out_plane)
                          : across_runs<false>(rows + c * plane, axis, out + c * out_plane);
        }
        return;
    }
#endif
    for (int c = 0; c < 3; ++c) across_plain(rows + c * plane, axis, out + c * out_plane);
}

// One output row. axis.taps rows from the first needed one on must be readable; `count` is a
// multiple of 16.
inline void down_pass(const std::uint8_t* rows, std::size_t stride, const Axis& axis, int output,
                      int count, std::uint8_t* out) {
    const std::uint8_t* start = rows + static_cast<std::size_t>(axis.first[output]) * stride;
#if defined(SLIP_SPLIT_KERNELS)
    if (axis.way == Split::columns) {
        return axis.negative ? down_split<true>(start, stride, axis, output, count, out)
                             : down_split<false>(start, stride, axis, output, count, out);
    }
#endif
    down_plain(start, stride, axis, output, count, out);
}

}  // namespace SLIP_ISA
}  // namespace slip
