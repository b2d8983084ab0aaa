// The double arithmetic here is Pillow's, operation by operation: the promise of equal bytes hangs
// on it. The file is compiled for the plain architecture only, because fused multiply-adds would
// round differently.
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
void fill_weights(const Geometry& geometry, double step, int output, int taps, double* scratch,
                  std::int32_t* first, std::int32_t* weights) {
    for (int i = 0; i < output; ++i) {
        const Span span = geometry.span(i);
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

using Fill = void (*)(const Geometry&, double, int, int, double*, std::int32_t*, std::int32_t*);

struct Kernel {
    Fill fill;
    double support;
};

Kernel kernel_of(Filter filter) {
    switch (filter) {
        case Filter::lanczos: return {fill_weights<lanczos>, 3.0};
        case Filter::bicubic: return {fill_weights<cubic>, 2.0};
        case Filter::box: return {fill_weights<box_filter>, 0.5};
        default: return {fill_weights<triangle>, 1.0};
    }
}

#if defined(__aarch64__)

bool fill_split(const std::int32_t* weights, std::size_t groups, std::int32_t lowest,
                std::int32_t highest, std::uint32_t* split) {
    const std::int32_t bias = lowest < 0 ? kSplitBias : 0;
    if (lowest < -bias || highest >= (1 << 24) - bias) return false;
    for (std::size_t g = 0; g < groups; ++g, split += kGroupWords) {
        split[0] = split[1] = split[2] = split[3] = 0;
        for (int t = 0; t < kTapGroup; ++t) {
            const auto weight = static_cast<std::uint32_t>(*weights++ + bias);
            for (int byte = 0; byte < 3; ++byte)
                split[byte] |= (weight >> 8 * byte & 0xFF) << 8 * t;
        }
    }
    return true;
}

#else

bool fill_split(const std::int32_t* weights, std::size_t groups, std::int32_t lowest,
                std::int32_t highest, std::uint32_t* split) {
    constexpr std::int32_t limit = 32767 << kLowBits;
    if (lowest < -limit || highest > limit) return false;
    for (std::size_t g = 0; g < groups; ++g, split += kGroupWords) {
        split[0] = split[1] = split[2] = split[3] = 0;
        for (int t = 0; t < kTapGroup; ++t) {
            const std::int32_t weight = *weights++;
            const auto low = static_cast<std::uint32_t>(weight & ((1 << kLowBits) - 1));
            const auto high = static_cast<std::uint16_t>(weight >> kLowBits);
            split[t / 2] |= low << 16 * (t % 2);
            split[2 + t / 2] |= static_cast<std::uint32_t>(high) << 16 * (t % 2);
        }
    }
    return true;
}

#endif

}  // namespace

bool Axis::prepare(int input_size, int output_size, Filter filter) {
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
    taps = (most + kTapGroup - 1) / kTapGroup * kTapGroup;
    const std::size_t count = static_cast<std::size_t>(taps) * output_size;
    const std::size_t split_words = count / kTapGroup * kGroupWords;
    if (!memory_.reserve(sizeof(double) * most +
                         sizeof(std::int32_t) * (output_size + count + split_words))) {
        return false;
    }
    auto* scratch = memory_.as<double>();
    auto* positions = reinterpret_cast<std::int32_t*>(scratch + most);
    auto* fixed = positions + output_size;
    auto* words = reinterpret_cast<std::uint32_t*>(fixed + count);
    kernel.fill(geometry, 1.0 / filter_scale, output_size, taps, scratch, positions, fixed);
    const auto [low, high] = std::minmax_element(fixed, fixed + count);
    negative = *low < 0;
    split_fits = fill_split(fixed, count / kTapGroup, *low, *high, words);
    first = positions;
    weights = fixed;
    split = words;
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
