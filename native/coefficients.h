// A picture as its quantized DCT coefficients: what "lossless" means here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "jpeg_header.h"
#include "status.h"

namespace slip {

using Bytes = std::vector<std::uint8_t>;

struct Plane {
    int width_blocks = 0, height_blocks = 0;
    std::vector<std::int16_t> blocks;       // [height_blocks][width_blocks][64], natural order
    std::array<std::uint16_t, 64> quant{};  // natural order

    std::int16_t* block(int row, int column) {
        return blocks.data() + (static_cast<std::size_t>(row) * width_blocks + column) * 64;
    }
    const std::int16_t* block(int row, int column) const {
        return const_cast<Plane*>(this)->block(row, column);
    }
};

struct Coefficients {
    Frame frame;
    Colour colour = Colour::gray;
    std::array<Plane, kMaxComponents> planes;
    Bytes markers;  // APPn and COM segments, as in the file

    // Sizes the planes for `frame`. Blocks are not cleared.
    void allocate();
};

struct ReadResult {
    Status status = Status::ok;
    std::string message;
    std::size_t trailing_bytes = 0;  // behind the end marker: a second picture, a video, …
};

// Through libjpeg: any 8-bit Huffman-coded JPEG of one or three components, progressive and
// multi-scan too. Files that libjpeg reads only with a warning are `unsupported`: their pixels
// depend on how a decoder guesses.
ReadResult read_coefficients(const std::uint8_t* data, std::size_t size, Coefficients& out);

// An ordinary baseline JPEG with optimized tables and the kept markers. Throws std::runtime_error.
Bytes write_jpeg(const Coefficients& coefficients);

}  // namespace slip
