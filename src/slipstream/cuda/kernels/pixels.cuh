// From decoded samples to pixels: libjpeg's triangle upsampling and its YCbCr to RGB, bit for bit.
#pragma once

#include "layout.cuh"

namespace slip::cuda {

// A pixel as 0x00BBGGRR.
SLIP_BOTH u32 pack_pixel(u32 red, u32 green, u32 blue) { return red | green << 8 | blue << 16; }
SLIP_BOTH u32 channel_of(u32 pixel, int c) { return pixel >> 8 * c & 255; }

// The component's value at pixel (x, y) of the whole picture. What the crop needs of the plane was decoded, with one
// sample more on each side where there is one; the plane's edge repeats itself.
SLIP_BOTH i32 sample_at(const Component& c, const u8* planes, i32 x, i32 y) {
    const u8* data = planes + c.plane;
    const auto at = [&](i32 column, i32 row) {
        return static_cast<i32>(data[(row - c.top) * c.stride + (column - c.left)]);
    };
    if (c.h_ratio == 1 && c.v_ratio == 1) return at(x, y);
    const bool smooth_x = c.h_ratio == 2 && c.width > 2 && c.v_ratio <= 2;
    const i32 column = x / c.h_ratio, row = y / c.v_ratio;
    const i32 near_column = x & 1 ? smaller(column + 1, c.width - 1) : larger(column - 1, 0);
    const i32 near_row = y & 1 ? smaller(row + 1, c.height - 1) : larger(row - 1, 0);
    if (smooth_x && c.v_ratio == 2) {
        const i32 here = 3 * at(column, row) + at(column, near_row);
        const i32 beside = 3 * at(near_column, row) + at(near_column, near_row);
        return (3 * here + beside + (x & 1 ? 7 : 8)) >> 4;
    }
    if (smooth_x) return (3 * at(column, row) + at(near_column, row) + (x & 1 ? 2 : 1)) >> 2;
    if (c.h_ratio == 1 && c.v_ratio == 2) return (3 * at(column, row) + at(column, near_row) + (y & 1 ? 2 : 1)) >> 2;
    return at(column, row);
}

// 16-bit fixed point, whole parts taken out of the factors: 1.402 = 1 + 26345/65536, 1.772 = 2 - 14942/65536,
// 0.71414 = 1 - 18734/65536.
SLIP_BOTH u32 ycc_to_rgb(i32 luma, i32 cb, i32 cr) {
    const i32 b = cb - 128, r = cr - 128;
    return pack_pixel(as_byte(luma + r + ((26345 * r + 32768) >> 16)),
                      as_byte(luma - r + ((-22554 * b + 18734 * r + 32768) >> 16)),
                      as_byte(luma + 2 * b + ((-14942 * b + 32768) >> 16)));
}

// Pixel (x, y) of the crop's needed part. `planes` are all pictures'.
SLIP_BOTH u32 pixel_at(const Picture& picture, const u8* planes, i32 x, i32 y) {
    planes += picture.planes;
    x += picture.x;
    y += picture.y;
    const i32 first = sample_at(picture.components[0], planes, x, y);
    if (picture.colour == kGray) return pack_pixel(first, first, first);
    const i32 second = sample_at(picture.components[1], planes, x, y);
    const i32 third = sample_at(picture.components[2], planes, x, y);
    return picture.colour == kYcc ? ycc_to_rgb(first, second, third) : pack_pixel(first, second, third);
}

}  // namespace slip::cuda
