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
    double scale, filter_scale, support;

    Geometry(int input, int output, double filter_support)
        : input(input),
          scale(static_cast<double>(input) / output),
          filter_scale(scale < 1.0 ? 1.0 : scale),
          support(filter_support * filter_scale) {}

    Span span(int i) const {
        const double center = 0.0 + (i + 0.5) * scale;
        const int begin = std::max(0, static_cast<int>(center - support + 0.5));
        return {center, begin, std::min(input, static_cast<int>(center + support + 0.5)) - begin};
    }
};

template <double (*value)(double)>
void fill_weights(const Geometry& geometry, const Stretch& stretch, bool mirror, int taps,
                  double* scratch, std::int32_t* first, std::int32_t* weights) {
    const double step = 1.0 / geometry.filter_scale;
    for (int i = 0; i < stretch.count; ++i) {
        const Span span = geometry.span(stretch.first + (mirror ? stretch.count - 1 - i : i));
        double sum = 0.0;
        for (int t = 0; t < span.count; ++t) {
            scratch[t] = value((t + span.begin - span.center + 0.5) * step);
            sum += scratch[t];
        }
        std::int32_t* out = weights + static_cast<std::size_t>(i) * taps;
        for (int t = 0; t < span.count; ++t)
            out[t] = to_fixed(sum != 0.0 ? scratch[t] / sum : scratch[t]);
        std::fill(out + span.count, out + taps, 0);
        first[i] = span.begin - stretch.begin;
    }
}

using Fill = void (*)(const Geometry&, const Stretch&, bool, int, double*, std::int32_t*,
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

// Calls visit(output, input or -1) for the outputs before `end`. Pillow adds the step up instead of
// multiplying it, and so do we: the rounding errors must be the same.
template <class Visit>
void each_nearest(int input, int output, int end, Visit&& visit) {
    const double step = static_cast<double>(input) / output;
    double at = 0.0 + step * 0.5;
    for (int i = 0; i < end; ++i, at += step) {
        const int index = at < 0.0 ? -1 : static_cast<int>(at);
        visit(i, index < input ? index : -1);
    }
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

Stretch stretch_of(int input, int output, int first, int count, Filter filter) {
    Stretch stretch{input, output, first, count, 0, input};
    if (count == output) return stretch;
    int begin = first, end = first + count;
    if (input != output && filter == Filter::nearest) {
        begin = input;
        end = 0;
        each_nearest(input, output, first + count, [&](int i, int at) {
            if (i < first || at < 0) return;
            begin = std::min(begin, at);
            end = std::max(end, at + 1);
        });
        if (begin >= end) begin = 0, end = 1;
    } else if (input != output) {
        const Geometry geometry(input, output, kernel_of(filter).support);
        const Span last = geometry.span(first + count - 1);
        begin = geometry.span(first).begin;
        end = last.begin + last.count;
    }
    stretch.begin = begin;
    stretch.size = end - begin;
    return stretch;
}

bool Axis::prepare(const Stretch& stretch, Filter filter, Direction direction, bool mirror) {
    output = stretch.count;
    identity = stretch.input == stretch.output;
    taps = 0;
    if (identity) return true;
    const Kernel kernel = kernel_of(filter);
    const Geometry geometry(stretch.input, stretch.output, kernel.support);
    int most = 0;
    for (int i = 0; i < output; ++i) most = std::max(most, geometry.span(stretch.first + i).count);

    // Four neighbouring outputs start at most ceil(3 * scale) apart.
    const bool narrow = std::ceil(3 * geometry.scale) + kTapGroup <= kWindow;
    way = direction == Direction::down ? Split::columns : narrow ? Split::windows : Split::runs;
    const Grouping grouping = grouping_of(way);
    taps = round_up(most, grouping.taps);
    const int padded = round_up(output, direction == Direction::across ? kOutputGroup : 1);
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

    kernel.fill(geometry, stretch, mirror, taps, scratch, positions, fixed);
    for (int i = output; i < padded; ++i) {  // the last group is complete, with copies of the last
        positions[i] = positions[output - 1];
        std::copy_n(fixed + static_cast<std::size_t>(output - 1) * taps, taps,
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

bool nearest_positions(const Stretch& stretch, Buffer& positions) {
    if (!positions.reserve(sizeof(std::int32_t) * stretch.count)) return false;
    auto* out = positions.as<std::int32_t>();
    each_nearest(stretch.input, stretch.output, stretch.first + stretch.count, [&](int i, int at) {
        if (i >= stretch.first) out[i - stretch.first] = at < 0 ? -1 : at - stretch.begin;
    });
    return true;
}

}  // namespace slip
