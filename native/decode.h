// From compressed bytes to finished pixels: decode, crop, resize, flip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "buffer.h"
#include "resize_weights.h"
#include "status.h"

namespace slip {

enum class Coding : std::uint8_t { file = 0, tiles = 1 };

struct Picture {
    const std::uint8_t* data;
    std::size_t size;
    Coding coding;
};

struct Box {
    int x, y, width, height;
};

// Which pass of a two-pass resize comes first. It shows in the last bit, and Pillow has changed its
// mind about it.
enum class PassOrder : int {
    horizontal_first = 0,  // up to 12.1
    tall_first = 1,    // 12.2 and 12.3: vertical first for pictures over 100 times as high as wide
    taller_first = 2,  // from 13.0: vertical first where more than twice as many rows as columns go
};

inline bool is_pass_order(int number) { return number >= 0 && number <= 2; }

constexpr int kLongestSide = 1 << 24;  // of anything; far from overflowing an int

// Where a target lies in the whole resized crop.
struct Window {
    int full_width, full_height;
    int left, top;
};

struct Target {
    std::uint8_t* pixels;  // height rows of width RGB pixels, without gaps
    int width, height;
    Filter filter;
    PassOrder order;
    bool mirror, upside_down;
    const Window* window = nullptr;  // null: the target is the whole resized crop
};

// What a thread keeps from picture to picture.
struct Scratch;
struct ScratchDeleter {
    void operator()(Scratch* scratch) const;
};
using ScratchPtr = std::unique_ptr<Scratch, ScratchDeleter>;
ScratchPtr make_scratch();

// Equal to Pillow's crop(box).resize(size, filter), cropped to the window, and transpose. Nothing
// is promised about the pixels unless the status is ok.
Status decode_picture(const Picture& picture, const Box& box, const Target& target,
                      Scratch& scratch);

// `pixels` has rows of `width` RGB pixels without gaps.
Status resize_picture(const std::uint8_t* pixels, int width, int height, const Target& target,
                      Scratch& scratch);

}  // namespace slip
