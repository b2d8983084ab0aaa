// What a JPEG's markers say, up to and including SOS: sizes, sampling, tables. Pure parsing, no
// decoding.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "status.h"

namespace slip {

constexpr int kMaxComponents = 3;
constexpr int kMaxDimension = 65500;  // libjpeg's own limit
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 28;

enum class Colour : std::uint8_t { gray = 0, ycc = 1, rgb = 2 };

// Natural (row-major) position of the k-th coefficient of a block. The decoder stores before it
// checks, so positions from 64 on exist too: end-of-block (a zero) and the runs of damaged data
// land on the last coefficient.
extern const std::uint8_t kNatural[192];

struct Component {
    int id = 0;
    int h = 1, v = 1;               // sampling factors
    int quant = 0, dc = 0, ac = 0;  // numbers of its tables
};

struct HuffmanSpec {
    const std::uint8_t* counts = nullptr;  // 16 numbers of codes of length 1..16; null: not defined
    const std::uint8_t* symbols = nullptr;
    int symbol_count = 0;
};

struct Frame {
    int width = 0, height = 0;
    int component_count = 0;
    std::array<Component, kMaxComponents> components;
    int h_max = 1, v_max = 1;
    int mcus_per_row = 0, mcu_rows = 0;
    int blocks_per_mcu = 0;

    int mcu_width() const { return 8 * h_max; }
    int mcu_height() const { return 8 * v_max; }
    // Size of a component's plane without padding, as libjpeg's "downsampled" size.
    int plane_width(int c) const { return ceil_div(width * components[c].h, h_max); }
    int plane_height(int c) const { return ceil_div(height * components[c].v, v_max); }
    std::int64_t block_count() const {
        return std::int64_t{mcus_per_row} * mcu_rows * blocks_per_mcu;
    }

    static int ceil_div(int a, int b) { return (a + b - 1) / b; }
};

struct JpegHeader {
    Frame frame;
    Colour colour = Colour::gray;
    std::array<std::array<std::uint16_t, 64>, 4> quant{};  // natural order
    std::array<bool, 4> has_quant{};
    std::array<HuffmanSpec, 4> dc, ac;  // point into the parsed data
    int restart_interval = 0;
    std::size_t size = 0;  // bytes up to the end of SOS
};

// Reads the header at the start of `data`. `unsupported` for progressive, arithmetic, 12-bit,
// multi-scan, four-component and oddly sampled files, and for data that is no JPEG at all.
Status parse_jpeg_header(const std::uint8_t* data, std::size_t size, JpegHeader& header);

// Width and height of any JPEG, also of those that parse_jpeg_header leaves alone. False where they
// cannot be told from the markers in front of the picture.
struct PictureSize {
    int width = 0, height = 0;
};
bool find_jpeg_size(const std::uint8_t* data, std::size_t size, PictureSize& picture);

// Fills the numbers that follow from size and sampling. False if the sampling is one we do not
// decode.
bool complete_frame(Frame& frame);

}  // namespace slip
