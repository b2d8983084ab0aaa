// The engine as tests call it: pictures in, images out, from every build of decode.cpp that runs
// here.
#pragma once

#include <optional>
#include <vector>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "isa.h"
#include "jpeg_maker.h"

namespace testing {

using DecodePicture = slip::Status (*)(const slip::Picture&, const slip::Box&, const slip::Target&,
                                       slip::Scratch&);
using ResizePicture = slip::Status (*)(const std::uint8_t*, int, int, const slip::Target&,
                                       slip::Scratch&);

struct Engine {
    const char* name;
    DecodePicture decode;
    ResizePicture resize;
};

inline bool runs_modern() {
#if !defined(SLIP_HAS_MODERN)
    return false;
#elif defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("fma");
#elif defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#else
    return true;
#endif
}

inline std::vector<Engine> engines() {
    std::vector<Engine> all{
        {"chosen", slip::decode_picture, slip::resize_picture},
        {"baseline", slip::baseline::decode_picture, slip::baseline::resize_picture}};
#if defined(SLIP_HAS_MODERN)
    if (runs_modern()) {
        all.push_back({"modern", slip::modern::decode_picture, slip::modern::resize_picture});
    }
#endif
    return all;
}

// What becomes of a crop: its size, and how it gets there.
struct Shape {
    int width, height;
    slip::Filter filter = slip::Filter::bilinear;
    slip::PassOrder order = slip::PassOrder::horizontal_first;
    bool mirror = false, upside_down = false;
    std::optional<slip::Window> window{};
};

// `shape` must outlive the target.
inline slip::Target target_of(Image& image, const Shape& shape) {
    return {image.pixels.data(), shape.width,
            shape.height,        shape.filter,
            shape.order,         shape.mirror,
            shape.upside_down,   shape.window ? &*shape.window : nullptr};
}

struct Decoded {
    slip::Status status;
    Image image;  // exactly as large as the target: a byte too many shows under the sanitizers
};

inline Decoded decode(const Engine& engine, const Bytes& bytes, slip::Coding coding,
                      const slip::Box& box, const Shape& shape, slip::Scratch& scratch) {
    Decoded out{slip::Status::ok, make_image(shape.width, shape.height)};
    const slip::Picture picture{bytes.data(), bytes.size(), coding};
    out.status = engine.decode(picture, box, target_of(out.image, shape), scratch);
    return out;
}

inline Shape random_shape(Random& random, int largest) {
    return {random.between(1, largest),
            random.between(1, largest),
            static_cast<slip::Filter>(random.between(0, 4)),
            static_cast<slip::PassOrder>(random.between(0, 2)),
            random.chance(2),
            random.chance(3)};
}

// Of a resized crop that is larger than the target; sometimes as large.
inline slip::Window random_window(Random& random, const Shape& shape, int most_beyond) {
    const int beyond_x = random.chance(4) ? 0 : random.between(0, most_beyond);
    const int beyond_y = random.chance(4) ? 0 : random.between(0, most_beyond);
    return {shape.width + beyond_x, shape.height + beyond_y, random.between(0, beyond_x),
            random.between(0, beyond_y)};
}

inline Shape random_windowed_shape(Random& random, int largest) {
    Shape shape = random_shape(random, largest);
    if (random.chance(2)) shape.window = random_window(random, shape, largest);
    return shape;
}

// Any box inside, often one that touches an edge.
inline slip::Box random_box(Random& random, int width, int height) {
    const auto side = [&](int size, int& start, int& length) {
        length = random.between(1, size);
        start = random.chance(4) ? 0 : random.between(0, size - length);
        if (random.chance(4)) start = size - length;
    };
    slip::Box box;
    side(width, box.x, box.width);
    side(height, box.y, box.height);
    return box;
}

inline std::string describe(const slip::Box& box) {
    return "box " + std::to_string(box.x) + "," + std::to_string(box.y) + " " +
           std::to_string(box.width) + "x" + std::to_string(box.height);
}

}  // namespace testing
