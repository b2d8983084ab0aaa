// Pictures made straight from random coefficients, and how two of them compare.
#pragma once

#include <memory>

#include "check.h"
#include "jpeg_maker.h"
#include "tile_record.h"

namespace testing {

struct CoefficientStyle {
    int largest = 1023;  // of AC values
    int largest_dc = 1023;
    int one_in = 8;  // how many AC coefficients are not zero
    int largest_quant = 255;
};

inline slip::Coefficients random_coefficients(const Sampling& sampling, int width, int height,
                                              const CoefficientStyle& style, Random& random) {
    slip::Coefficients picture;
    slip::Frame& frame = picture.frame;
    frame.width = width;
    frame.height = height;
    frame.component_count = sampling.components;
    picture.colour = sampling.components == 1 ? slip::Colour::gray : slip::Colour::ycc;
    for (int c = 0; c < sampling.components; ++c) {
        frame.components[c].id = c + 1;
        frame.components[c].h = sampling.h[c];
        frame.components[c].v = sampling.v[c];
    }
    CHECK(slip::complete_frame(frame));
    picture.allocate();
    for (int c = 0; c < sampling.components; ++c) {
        for (auto& q : picture.planes[c].quant) {
            q = static_cast<std::uint16_t>(random.between(1, style.largest_quant));
        }
        auto& blocks = picture.planes[c].blocks;
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            const int largest = i % 64 ? style.largest : style.largest_dc;
            const bool zero = i % 64 && !random.chance(style.one_in);
            blocks[i] = static_cast<std::int16_t>(zero ? 0 : random.between(-largest, largest));
        }
    }
    if (sampling.components == 3 && random.chance(2)) {
        picture.planes[2].quant = picture.planes[1].quant;  // as most files have it
    }
    return picture;
}

inline bool same_coefficients(const slip::Coefficients& a, const slip::Coefficients& b) {
    bool same = a.frame.width == b.frame.width && a.frame.height == b.frame.height &&
                a.frame.component_count == b.frame.component_count && a.colour == b.colour;
    for (int c = 0; same && c < a.frame.component_count; ++c) {
        const slip::Component &left = a.frame.components[c], &right = b.frame.components[c];
        same = left.h == right.h && left.v == right.v && left.id == right.id &&
               a.planes[c].width_blocks == b.planes[c].width_blocks &&
               a.planes[c].height_blocks == b.planes[c].height_blocks &&
               a.planes[c].quant == b.planes[c].quant && a.planes[c].blocks == b.planes[c].blocks;
    }
    return same;
}

inline Bytes record_of(const slip::Coefficients& picture) {
    Bytes record;
    CHECK(slip::encode_tile_record(picture, record) == slip::Status::ok);
    return record;
}

inline slip::Status read_record(const Bytes& record, slip::Coefficients& out) {
    const auto parsed = std::make_unique<slip::TileRecord>();
    const slip::Status status = slip::parse_tile_record(record.data(), record.size(), *parsed);
    return status == slip::Status::ok ? slip::decode_tile_record(*parsed, out) : status;
}

inline slip::Coefficients coefficients_of_record(const Bytes& record) {
    slip::Coefficients picture;
    CHECK(read_record(record, picture) == slip::Status::ok);
    return picture;
}

inline slip::Coefficients coefficients_of_file(const Bytes& file) {
    slip::Coefficients picture;
    const slip::ReadResult result = slip::read_coefficients(file.data(), file.size(), picture);
    CHECK(result.status == slip::Status::ok);
    return picture;
}

}  // namespace testing
