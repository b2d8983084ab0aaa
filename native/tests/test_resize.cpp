#include <cmath>
#include <limits>

#include "check.h"
#include "decode.h"
#include "engine.h"
#include "resize_weights.h"

namespace {

using namespace testing;
using slip::Axis;
using slip::Filter;
using slip::PassOrder;
using slip::Status;

constexpr Filter kWeighing[] = {Filter::lanczos, Filter::bilinear, Filter::bicubic, Filter::box};

// The numbers of one direction, outputs in their natural order.
void prepare(Axis& axis, int input, int output, Filter filter) {
    CHECK(axis.prepare(slip::stretch_of(input, output, 0, output, filter), filter,
                       slip::Direction::down, false));
}

std::uint8_t rounded(std::int64_t sum) {
    const std::int64_t value = (sum + (1 << (slip::kWeightBits - 1))) >> slip::kWeightBits;
    return static_cast<std::uint8_t>(std::clamp<std::int64_t>(value, 0, 255));
}

// One pass over columns (or, `down`, rows), sample by sample.
Image plain_pass(const Image& in, int output, Filter filter, bool down) {
    const int input = down ? in.height : in.width;
    if (input == output) return in;
    Axis axis;
    prepare(axis, input, output, filter);
    Image out = down ? make_image(in.width, output) : make_image(output, in.height);
    for (int y = 0; y < out.height; ++y) {
        for (int x = 0; x < out.width; ++x) {
            const int i = down ? y : x;
            for (int c = 0; c < 3; ++c) {
                std::int64_t sum = 0;
                for (int t = 0; t < axis.taps && axis.first[i] + t < input; ++t) {
                    const std::int64_t weight =
                        axis.weights[static_cast<std::size_t>(i) * axis.taps + t];
                    const int from = axis.first[i] + t;
                    sum += weight * (down ? in.at(x, from)[c] : in.at(from, y)[c]);
                }
                out.at(x, y)[c] = rounded(sum);
            }
        }
    }
    return out;
}

bool rows_come_first(const Image& in, const Shape& shape) {
    if (in.width == shape.width || in.height == shape.height) return false;  // one pass: no order
    switch (shape.order) {
        case PassOrder::horizontal_first: return false;
        case PassOrder::tall_first: return in.height > 100 * in.width && shape.height < in.height;
        case PassOrder::taller_first:
            return in.height > shape.height &&
                   in.height - shape.height > 2 * (in.width - shape.width);
    }
    return false;
}

Image plain_nearest(const Image& in, const Shape& shape) {
    const auto positions = [](int input, int output) {
        std::vector<int> all(static_cast<std::size_t>(output));
        const double step = static_cast<double>(input) / output;
        double at = step * 0.5;
        for (int& position : all) {
            position = static_cast<int>(at);
            at += step;
        }
        return all;
    };
    const auto columns = positions(in.width, shape.width),
               rows = positions(in.height, shape.height);
    Image out = make_image(shape.width, shape.height);
    for (int y = 0; y < shape.height; ++y) {
        for (int x = 0; x < shape.width; ++x) {
            if (columns[x] >= in.width || rows[y] >= in.height)
                continue;  // black, as Pillow has it
            std::copy_n(in.at(columns[x], rows[y]), 3, out.at(x, y));
        }
    }
    return out;
}

Image plain_resize(const Image& in, const Shape& shape) {
    if (shape.window) {
        Shape whole = shape;
        whole.window.reset();
        whole.width = shape.window->full_width;
        whole.height = shape.window->full_height;
        whole.mirror = whole.upside_down = false;
        const Image resized = plain_resize(in, whole);
        return flip(crop(resized, shape.window->left, shape.window->top, shape.width, shape.height),
                    shape.mirror, shape.upside_down);
    }
    Image out;
    if (shape.filter == Filter::nearest) {
        out = plain_nearest(in, shape);
    } else if (rows_come_first(in, shape)) {
        out = plain_pass(plain_pass(in, shape.height, shape.filter, true), shape.width,
                         shape.filter, false);
    } else {
        out = plain_pass(plain_pass(in, shape.width, shape.filter, false), shape.height,
                         shape.filter, true);
    }
    return flip(out, shape.mirror, shape.upside_down);
}

std::string describe(const slip::Window& window) {
    return ", window at " + std::to_string(window.left) + "," + std::to_string(window.top) +
           " of " + std::to_string(window.full_width) + "x" + std::to_string(window.full_height);
}

void check_resize(const Image& in, const Shape& shape, slip::Scratch& scratch) {
    check::looking_at(std::to_string(in.width) + "x" + std::to_string(in.height) + " to " +
                      std::to_string(shape.width) + "x" + std::to_string(shape.height) +
                      ", filter " + std::to_string(static_cast<int>(shape.filter)) + ", order " +
                      std::to_string(static_cast<int>(shape.order)) +
                      (shape.mirror ? ", mirrored" : "") +
                      (shape.window ? describe(*shape.window) : ""));
    const Image expected = plain_resize(in, shape);
    for (const Engine& engine : engines()) {
        Image got = make_image(shape.width, shape.height);
        CHECK(engine.resize(in.pixels.data(), in.width, in.height, target_of(got, shape),
                            scratch) == Status::ok);
        CHECK(got.pixels == expected.pixels);
    }
}

// Full contrast from pixel to pixel: sums reach their ends, and clipping is needed.
Image harsh_image(int width, int height, Random& random) {
    Image image = make_image(width, height);
    const int kind = random.between(0, 3);
    for (auto& byte : image.pixels) {
        byte = kind == 0 ? 255 : kind == 1 ? (random.chance(2) ? 255 : 0) : random.byte();
    }
    return image;
}

void random_sizes() {
    Random random(60);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (int round = 0; round < 260; ++round) {
        const int most = round % 10 == 0 ? 300 : round % 3 ? 60 : 130;
        const Image in = harsh_image(random.between(1, most), random.between(1, most), random);
        check_resize(in, random_shape(random, most), *scratch);
    }
}

void every_small_pair() {
    Random random(61);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (int input = 1; input <= 20; ++input) {
        for (int output = 1; output <= 20; ++output) {
            const Image in = harsh_image(input, 21 - output, random);
            Shape shape = random_shape(random, 20);
            shape.width = output;
            shape.filter = static_cast<Filter>((input + output) % 5);
            check_resize(in, shape, *scratch);
        }
    }
}

// Sizes around the widths that kernels handle at once.
void kernel_widths() {
    Random random(62);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (int width = 1; width <= 70; ++width) {
        const Image in = harsh_image(random.between(1, 100), random.between(1, 40), random);
        Shape shape = random_shape(random, 30);
        shape.width = width;
        shape.filter = kWeighing[width % 4];
        check_resize(in, shape, *scratch);
    }
}

void extreme_shapes() {
    Random random(63);
    const slip::ScratchPtr scratch = slip::make_scratch();
    const int sizes[][4] = {
        {1, 5000, 7, 3}, {5000, 1, 3, 7}, {1, 1, 500, 500},   {2000, 2, 1, 1},
        {2, 2000, 1, 1}, {1, 1, 1, 1},    {3000, 3, 2999, 4}, {3, 3000, 4, 2999},
        {1, 1, 3000, 1}, {1, 1, 1, 3000}, {300, 300, 1, 1},   {7, 3, 1, 2500},
        {1, 101, 2, 50}, {1, 100, 2, 50}, {20, 2001, 10, 9},  {4, 9000, 5, 8999}};
    for (const auto& [width, height, to_width, to_height] : sizes) {
        const Image in = harsh_image(width, height, random);
        for (int filter = 0; filter <= 4; ++filter) {
            for (int order = 0; order <= 2; ++order) {
                const Shape shape{to_width,
                                  to_height,
                                  static_cast<Filter>(filter),
                                  static_cast<PassOrder>(order),
                                  random.chance(2),
                                  random.chance(2)};
                check_resize(in, shape, *scratch);
            }
        }
    }
}

void windows_of_random_sizes() {
    Random random(67);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (int round = 0; round < 600; ++round) {
        const Image in = harsh_image(random.between(1, 160), random.between(1, 160), random);
        Shape shape = random_shape(random, 90);
        shape.window = random_window(random, shape, random.chance(2) ? 8 : 120);
        if (random.chance(4)) {  // without a pass in one direction or both
            shape.width = random.between(1, in.width);
            shape.window->full_width = in.width;
            shape.window->left = random.between(0, in.width - shape.width);
        }
        if (random.chance(4)) {
            shape.height = random.between(1, in.height);
            shape.window->full_height = in.height;
            shape.window->top = random.between(0, in.height - shape.height);
        }
        check_resize(in, shape, *scratch);
    }
}

// Each single output, where a mistake by one input shows.
void windows_of_one_pixel() {
    Random random(68);
    const slip::ScratchPtr scratch = slip::make_scratch();
    const Image in = harsh_image(61, 33, random);
    for (int filter = 0; filter <= 4; ++filter) {
        for (const int size : {7, 33, 61, 100}) {
            for (int at = 0; at < size; ++at) {
                Shape shape{1, 1, static_cast<Filter>(filter),
                            static_cast<PassOrder>(random.between(0, 2))};
                shape.window = {size, size, at, size - 1 - at};
                check_resize(in, shape, *scratch);
            }
        }
    }
}

void windows_outside_are_refused() {
    const slip::ScratchPtr scratch = slip::make_scratch();
    const Image in = make_image(20, 20);
    constexpr int most = std::numeric_limits<int>::max(), least = std::numeric_limits<int>::min();
    const slip::Window windows[] = {{9, 30, 0, 0},       {30, 9, 0, 0},     {30, 30, 21, 0},
                                    {30, 30, 0, 21},     {30, 30, -1, 0},   {30, 30, 0, -1},
                                    {0, 0, 0, 0},        {-5, 30, 0, 0},    {most, 30, 0, 0},
                                    {30, most, 0, most}, {30, 30, most, 0}, {30, 30, least, least}};
    for (const slip::Window& window : windows) {
        for (int filter = 0; filter <= 4; ++filter) {
            Image out = make_image(10, 10);
            Shape shape{10, 10, static_cast<Filter>(filter)};
            shape.window = window;
            check::looking_at(describe(window));
            CHECK(slip::resize_picture(in.pixels.data(), 20, 20, target_of(out, shape), *scratch) ==
                  Status::box);
        }
    }
}

void same_size_is_a_copy() {
    Random random(64);
    const slip::ScratchPtr scratch = slip::make_scratch();
    const Image in = random_image(37, 23, random);
    for (int filter = 0; filter <= 4; ++filter) {
        for (const Engine& engine : engines()) {
            Image out = make_image(37, 23);
            const Shape shape{37, 23, static_cast<Filter>(filter)};
            CHECK(engine.resize(in.pixels.data(), 37, 23, target_of(out, shape), *scratch) ==
                  Status::ok);
            CHECK(out.pixels == in.pixels);
        }
    }
}

// A flat picture stays flat, whatever happens to its size.
void flat_stays_flat() {
    Random random(65);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (int round = 0; round < 60; ++round) {
        Image in = make_image(random.between(1, 200), random.between(1, 200));
        std::fill(in.pixels.begin(), in.pixels.end(), round % 2 ? 255 : random.byte());
        Shape shape = random_shape(random, 200);
        if (shape.filter == Filter::nearest) shape.filter = Filter::box;
        Image out = make_image(shape.width, shape.height);
        CHECK(slip::resize_picture(in.pixels.data(), in.width, in.height, target_of(out, shape),
                                   *scratch) == Status::ok);
        for (const auto byte : out.pixels) CHECK(byte == in.pixels[0]);
    }
}

double support_of(Filter filter) {
    return filter == Filter::lanczos   ? 3
           : filter == Filter::bicubic ? 2
           : filter == Filter::box     ? 0.5
                                       : 1;
}

double kernel_value(Filter filter, double x) {
    x = std::fabs(x);
    const double pi_x = M_PI * x;
    switch (filter) {
        case Filter::lanczos:
            return x == 0 ? 1 : x < 3 ? 3 * std::sin(pi_x) * std::sin(pi_x / 3) / (pi_x * pi_x) : 0;
        case Filter::bicubic:
            if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
            return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
        case Filter::box: return x <= 0.5 ? 1 : 0;
        default: return x < 1 ? 1 - x : 0;
    }
}

// The fixed-point weights against the filters' definitions; rounding may move them by one unit.
void weights_are_the_filters() {
    Random random(66);
    for (int round = 0; round < 400; ++round) {
        const int input = random.between(1, 400), output = random.between(1, 400);
        if (input == output) continue;
        const Filter filter = kWeighing[round % 4];
        check::looking_at(std::to_string(input) + " to " + std::to_string(output) + ", filter " +
                          std::to_string(static_cast<int>(filter)));
        Axis axis;
        prepare(axis, input, output, filter);
        const double scale = static_cast<double>(input) / output, wide = std::max(scale, 1.0);
        CHECK(axis.taps % slip::kTapGroup == 0 && !axis.identity);
        for (int i = 0; i < output; ++i) {
            const double center = (i + 0.5) * scale;
            const std::int32_t* weights = axis.weights + static_cast<std::size_t>(i) * axis.taps;
            std::vector<double> values(static_cast<std::size_t>(axis.taps));
            double total = 0;
            std::int64_t fixed_total = 0;
            for (int t = 0; t < axis.taps; ++t) {
                const int at = axis.first[i] + t;
                const bool counts =
                    at < input && std::fabs(at + 0.5 - center) < support_of(filter) * wide + 0.5;
                values[t] = counts ? kernel_value(filter, (at + 0.5 - center) / wide) : 0;
                // Beyond the filter's reach there is nothing, and on the edge of a box either is
                // right.
                if (filter == Filter::box && weights[t] == 0) values[t] = 0;
                total += values[t];
                fixed_total += weights[t];
            }
            CHECK(std::llabs(fixed_total - (1 << slip::kWeightBits)) <= axis.taps);
            for (int t = 0; t < axis.taps; ++t) {
                const double exact = values[t] / total * (1 << slip::kWeightBits);
                CHECK(std::fabs(exact - weights[t]) <= 1.0);
            }
            CHECK(axis.first[i] >= 0 && axis.first[i] < input);
        }
    }
}

void nearest_positions_stay_inside() {
    slip::Buffer buffer;
    for (int input = 1; input < 120; ++input) {
        for (int output = 1; output < 120; ++output) {
            CHECK(slip::nearest_positions({input, output, 0, output, 0, input}, buffer));
            const auto* positions = buffer.as<std::int32_t>();
            for (int i = 0; i < output; ++i) {
                const double exact = (i + 0.5) * input / output;
                CHECK(positions[i] < input && std::fabs(positions[i] + 0.5 - exact) <= 0.5 + 1e-9);
            }
        }
    }
}

}  // namespace

int main() {
    check::run("random sizes", random_sizes);
    check::run("every small pair", every_small_pair);
    check::run("kernel widths", kernel_widths);
    check::run("extreme shapes", extreme_shapes);
    check::run("windows of random sizes", windows_of_random_sizes);
    check::run("windows of one pixel", windows_of_one_pixel);
    check::run("windows outside are refused", windows_outside_are_refused);
    check::run("same size is a copy", same_size_is_a_copy);
    check::run("flat stays flat", flat_stays_flat);
    check::run("weights are the filters", weights_are_the_filters);
    check::run("nearest positions stay inside", nearest_positions_stay_inside);
    return check::finish();
}
