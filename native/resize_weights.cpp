// The double arithmetic here is Pillow's, operation by operation: the promise of equal bytes hangs
// on it. The file is compiled as Pillow's wheels are, for the plain architecture: fused
// multiply-adds where those have them (arm64), none where they have none (x86-64).
#include "resize_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace slip {
namespace {

double box_filter(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double triangle(double x) {
    if (x < 0.0) x = -x;
    return x < 1.0 ? 1.0 - x : 0.0;
}

double cubic(double x) {
    constexpr double a = -0.5;
    if (x < 0.0) x = -x;
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

double sinc(double x) {
    if (x == 0.0) return 1.0;
    x = x * M_PI;
    return std::sin(x) / x;
}

double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

std::int32_t to_fixed(double weight) {
    const double scaled = weight * (1 << kWeightBits);
    return weight < 0 ? static_cast<std::int32_t>(-0.5 + scaled)
                      : static_cast<std::int32_t>(0.5 + scaled);
}

// The inputs that output i takes in.
struct Span {
    double center;
    int begin, count;
};

struct Geometry {
    int input;
    double scale, support;

    Span span(int i) const {
        const double center = 0.0 + (i + 0.5) * scale;
        const int begin = std::max(0, static_cast<int>(center - support + 0.5));
        return {center, begin, std::min(input, static_cast<int>(center + support + 0.5)) - begin};
    }
};

template <double (*value)(double)>
void fill_weights(const Geometry& geometry, double step, int output, bool mirror, int taps,
                  double* scratch, std::int32_t* first, std::int32_t* weights) {
    for (int i = 0; i < output; ++i) {
        const Span span = geometry.span(mirror ? output - 1 - i : i);
        double sum = 0.0;
        for (int t = 0; t < span.count; ++t) {
            scratch[t] = value((t + span.begin - span.center + 0.5) * step);
            sum += scratch[t];
        }
        std::int32_t* out = weights + static_cast<std::size_t>(i) * taps;
        for (int t = 0; t < span.count; ++t)
            out[t] = to_fixed(sum != 0.0 ? scratch[t] / sum : scratch[t]);
        std::fill(out + span.count, out + taps, 0);
        first[i] = span.begin;
    }
}

using Fill = void (*)(const Geometry&, double, int, bool, int, double*, std::int32_t*,
                      std::int32_t*);

struct Kernel {
    Fill fill;
    double support;
    bool negative;  // has negative parts; the others' weights lie between 0 and 1
};

Kernel kernel_of(Filter filter) {
    switch (filter) {
        case Filter::lanczos: return {fill_weights<lanczos>, 3.0, true};
        case Filter::bicubic: return {fill_weights<cubic>, 2.0, true};
        case Filter::box: return {fill_weights<box_filter>, 0.5, false};
        default: return {fill_weights<triangle>, 1.0, false};
    }
}

// split_group fills the words of `taps` taps of `lanes` outputs, whose weights stand `stride`
// apart.
#if defined(__aarch64__)

bool can_split(std::int32_t lowest, std::int32_t highest) {
    return lowest >= -kSplitBias && highest < (1 << 24) - kSplitBias;
}

// Four times a weight of one would take a bit too many. One less gives the same result: beside a
// weight of one there is at most rounding dust, and half a unit is 2^21.
std::uint32_t shifted(std::int32_t weight) {
    constexpr std::int32_t most = (1 << kWeightBits) - 1;
    return static_cast<std::uint32_t>(std::min(weight, most)) << kSplitShift;
}

void split_group(const std::int32_t* weights, std::size_t stride, int lanes, int taps,
                 bool negative, std::uint32_t* split) {
    const int words = lanes * taps / kTapGroup;
    for (int lane = 0; lane < lanes; ++lane, weights += stride) {
        for (const std::int32_t* four = weights; four < weights + taps;
             four += kTapGroup, ++split) {
            std::uint32_t low = 0, middle = 0, high = 0;
            for (int t = 0; t < kTapGroup; ++t) {
                const std::uint32_t value =
                    negative ? static_cast<std::uint32_t>(four[t] + kSplitBias) : shifted(four[t]);
                low |= (value & 0xFF) << 8 * t;
                middle |= (value >> 8 & 0xFF) << 8 * t;
                high |= (value >> 16 & 0xFF) << 8 * t;
            }
            split[0] = low;
            split[words] = middle;
            split[2 * words] = high;
        }
    }
}

#else

bool can_split(std::int32_t lowest, std::int32_t highest) {
    constexpr std::int32_t limit = 32767 << kLowBits;
    return lowest >= -limit && highest <= limit;
}

void split_group(const std::int32_t* weights, std::size_t stride, int lanes, int taps, bool,
                 std::uint32_t* split) {
    const int words = lanes * taps / 2;
    for (int lane = 0; lane < lanes; ++lane, weights += stride) {
        for (const std::int32_t* two = weights; two < weights + taps; two += 2, ++split) {
            std::uint32_t low = 0, high = 0;
            for (int t = 0; t < 2; ++t) {
                low |= static_cast<std::uint32_t>(two[t] & ((1 << kLowBits) - 1)) << 16 * t;
                high |= static_cast<std::uint32_t>(static_cast<std::uint16_t>(two[t] >> kLowBits))
                        << 16 * t;
            }
            split[0] = low;
            split[words] = high;
        }
    }
}

#endif

// Windows of every four outputs; false if one is too small for its outputs.
bool fill_windows(const std::int32_t* first, int quads, std::int32_t* base, std::uint8_t* pick) {
    for (int q = 0; q < quads; ++q, first += kTapGroup, pick += kWindow) {
        base[q] = *std::min_element(first, first + kTapGroup);
        for (int lane = 0; lane < kTapGroup; ++lane) {
            const int start = first[lane] - base[q];
            if (start + kTapGroup > kWindow) return false;
            for (int t = 0; t < kTapGroup; ++t)
                pick[lane * kTapGroup + t] = static_cast<std::uint8_t>(start + t);
        }
    }
    return true;
}

int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

// How the weights of one group are laid out.
struct Grouping {
    int lanes, taps, words;
};

Grouping grouping_of(Split way) {
    switch (way) {
        case Split::windows: return {kTapGroup, kTapGroup, kAcrossWords};
        case Split::runs: return {1, kLongGroup, kLongWords};
        default: return {1, kTapGroup, kDownWords};
    }
}

}  // namespace

bool Axis::prepare(int input_size, int output_size, Filter filter, Direction direction,
                   bool mirror) {
    input = input_size;
    output = output_size;
    identity = input_size == output_size;
    taps = 0;
    if (identity) return true;
    const Kernel kernel = kernel_of(filter);
    const double scale = static_cast<double>(input_size) / output_size;
    const double filter_scale = scale < 1.0 ? 1.0 : scale;
    const Geometry geometry{input_size, scale, kernel.support * filter_scale};
    int most = 0;
    for (int i = 0; i < output_size; ++i) most = std::max(most, geometry.span(i).count);

    // Four neighbouring outputs start at most ceil(3 * scale) apart.
    const bool narrow = std::ceil(3 * scale) + kTapGroup <= kWindow;
    way = direction == Direction::down ? Split::columns : narrow ? Split::windows : Split::runs;
    const Grouping grouping = grouping_of(way);
    taps = round_up(most, grouping.taps);
    const int padded = round_up(output_size, direction == Direction::across ? kOutputGroup : 1);
    const int quads = way == Split::windows ? padded / kTapGroup : 0, groups = taps / grouping.taps;
    const std::size_t count = static_cast<std::size_t>(taps) * padded;
    const std::size_t split_words =
        static_cast<std::size_t>(padded / grouping.lanes) * groups * grouping.words;
    // Vectors first, so that they are aligned.
    const std::size_t pick_bytes = static_cast<std::size_t>(quads) * kWindow;
    if (!memory_.reserve(pick_bytes +
                         sizeof(std::int32_t) * (split_words + padded + count + quads + 1) +
                         sizeof(double) * most)) {
        return false;
    }
    auto* picks = memory_.as<std::uint8_t>();
    auto* words = reinterpret_cast<std::uint32_t*>(picks + pick_bytes);
    auto* scratch = reinterpret_cast<double*>(words + (split_words + 1) / 2 * 2);
    auto* positions = reinterpret_cast<std::int32_t*>(scratch + most);
    auto* fixed = positions + padded;
    auto* windows = fixed + count;

    kernel.fill(geometry, 1.0 / filter_scale, output_size, mirror, taps, scratch, positions, fixed);
    for (int i = output_size; i < padded;
         ++i) {  // the last group is complete, with copies of the last
        positions[i] = positions[output_size - 1];
        std::copy_n(fixed + static_cast<std::size_t>(output_size - 1) * taps, taps,
                    fixed + static_cast<std::size_t>(i) * taps);
    }
    negative = kernel.negative;
    if (negative) {
        const auto [low, high] = std::minmax_element(fixed, fixed + count);
        if (!can_split(*low, *high)) way = Split::none;
    }
    if (!fill_windows(positions, quads, windows, picks)) way = Split::none;
    for (int i = 0; way != Split::none && i < padded; i += grouping.lanes) {
        const std::int32_t* row = fixed + static_cast<std::size_t>(i) * taps;
        for (int g = 0; g < groups; ++g) {
            split_group(row + g * grouping.taps, static_cast<std::size_t>(taps), grouping.lanes,
                        grouping.taps, negative,
                        words + (static_cast<std::size_t>(i / grouping.lanes) * groups + g) *
                                    grouping.words);
        }
    }
    first = positions;
    weights = fixed;
    split = words;
    base = windows;
    pick = picks;
    return true;
}

// Pillow adds the step up instead of multiplying it, and so do we: the rounding errors must be the
// same.
bool nearest_positions(int input, int output, Buffer& positions) {
    if (!positions.reserve(sizeof(std::int32_t) * output)) return false;
    auto* out = positions.as<std::int32_t>();
    const double step = static_cast<double>(input) / output;
    double at = 0.0 + step * 0.5;
    for (int i = 0; i < output; ++i, at += step) {
        const int index = at < 0.0 ? -1 : static_cast<int>(at);
        out[i] = index < input ? index : -1;
    }
    return true;
}

}  // namespace slip
