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

// The component's values at pixels (x, y) and (x + 1, y), where x is even and two pixels share a sample across, at most
// two down. One of the two may not be needed: what it is made of may not have been decoded, so reads stay inside of
// what was.
SLIP_BOTH void sample_pair_at(const Component& c, const u8* planes, i32 x, i32 y, i32 (&values)[2]) {
    const i32 column = x / 2, row = y / c.v_ratio;
    const i32 before = larger(column - 1, c.left);
    const i32 behind = smaller(column + 1, smaller(c.width, c.left + c.stride) - 1);
    const u8* here = planes + c.plane + (row - c.top) * c.stride - c.left;
    if (c.v_ratio == 1) {
        values[0] = (3 * here[column] + here[before] + 1) >> 2;
        values[1] = (3 * here[column] + here[behind] + 2) >> 2;
        return;
    }
    const i32 near = y & 1 ? smaller(row + 1, c.height - 1) : larger(row - 1, 0);
    const u8* there = here + (near - row) * c.stride;
    const i32 middle = 3 * (3 * here[column] + there[column]);
    values[0] = (middle + 3 * here[before] + there[before] + 8) >> 4;
    values[1] = (middle + 3 * here[behind] + there[behind] + 7) >> 4;
}

// Pixels (x, y) and (x + 1, y) of the whole picture, x even, where picture.pairs: the usual YCbCr with chroma that is
// halved across, and maybe down.
SLIP_BOTH void pixel_pair_at(const Picture& picture, const u8* planes, i32 x, i32 y, u32 (&pixels)[2]) {
    planes += picture.planes;
    const Component& c = picture.components[0];
    const u8* luma = planes + c.plane + (y - c.top) * c.stride + (x - c.left);
    i32 cb[2], cr[2];
    sample_pair_at(picture.components[1], planes, x, y, cb);
    sample_pair_at(picture.components[2], planes, x, y, cr);
    for (int i = 0; i < 2; ++i) pixels[i] = ycc_to_rgb(luma[i], cb[i], cr[i]);
}

}  // namespace slip::cuda
