// The two passes of Pillow's resize, one pixel at a time.
#pragma once

#include "pixels.cuh"

namespace slip::cuda {

constexpr int kWeightBits = 22;

SLIP_BOTH u32 round_weighted(i32 sum) {
    return as_byte((sum + (1 << (kWeightBits - 1))) >> kWeightBits);
}

// Output `i` of an axis; `read(n)` gives input n.
template <class Read>
SLIP_BOTH u32 weigh(const Axis& axis, u32 i, Read read) {
    const i32 first = axis.first[i];
    i32 red = 0, green = 0, blue = 0;
    for (i32 t = 0; t < axis.taps; ++t) {
        const i32 weight = axis.weights[t * axis.outputs + static_cast<i32>(i)];
        const u32 pixel = read(first + t);
        red += weight * static_cast<i32>(channel_of(pixel, 0));
        green += weight * static_cast<i32>(channel_of(pixel, 1));
        blue += weight * static_cast<i32>(channel_of(pixel, 2));
    }
    return pack_pixel(round_weighted(red), round_weighted(green), round_weighted(blue));
}

// Rows [first, end) of the crop's needed part into `kept`, for `lane` of `lanes` threads.
SLIP_BOTH void keep_rows(const Picture& picture, u32 first, u32 end, const u8* planes, u32* kept, u32 lane,
                         u32 lanes) {
    const u32 width = picture.input_width;
    if (!picture.pairs) {
        for (u32 i = lane; i < (end - first) * width; i += lanes) {
            const u32 y = i / width, x = i - y * width;
            kept[i] = pixel_at(picture, planes, static_cast<i32>(x), static_cast<i32>(first + y));
        }
        return;
    }
    // Pairs start at even pixels of the whole picture.
    const u32 odd = picture.x & 1, pairs = (width + odd + 1) / 2;
    for (u32 i = lane; i < (end - first) * pairs; i += lanes) {
        const u32 y = i / pairs, x = 2 * (i - y * pairs);
        u32 pixels[2];
        pixel_pair_at(picture, planes, picture.x + static_cast<i32>(x) - static_cast<i32>(odd),
                      picture.y + static_cast<i32>(first + y), pixels);
        u32* row = kept + y * width;
        if (x >= odd) row[x - odd] = pixels[0];
        if (x + 1 - odd < width) row[x + 1 - odd] = pixels[1];
    }
}

// The same rows of the first pass, which goes across them.
SLIP_BOTH void first_pass_of_rows(const u8* slot, const Picture& picture, u32 first, u32 end, const u32* kept,
                                  u32* middle, u32 lane, u32 lanes) {
    const Axis axis = axis_at(slot, picture.across_at);
    const u32 width = picture.middle_width, count = (end - first) * width;
    u32* own = middle + picture.middle + static_cast<u64>(first) * width;
    for (u32 i = lane; i < count; i += lanes) {
        const u32 y = i / width, x = i - y * width;
        const u32* row = kept + y * picture.input_width;
        own[i] = weigh(axis, x, [&](i32 column) { return row[column]; });
    }
}

// Pixel `number` of the first pass, row by row, where it goes down or rows are too long to be kept.
SLIP_BOTH void first_pass(const u8* slot, const Picture& picture, u32 number, const u8* planes, u32* middle) {
    const u32 y = number / picture.middle_width, x = number % picture.middle_width;
    const Axis axis = axis_at(slot, picture.down_first ? picture.down_at : picture.across_at);
    u32 pixel;
    if (picture.down_first) {
        pixel = weigh(axis, y, [&](i32 row) { return pixel_at(picture, planes, static_cast<i32>(x), row); });
    } else {
        pixel = weigh(axis, x, [&](i32 column) { return pixel_at(picture, planes, column, static_cast<i32>(y)); });
    }
    middle[picture.middle + number] = pixel;
}

// Pixel (x, y) of a picture's result, before it is flipped.
SLIP_BOTH u32 second_pass(const u8* slot, const Picture& picture, u32 x, u32 y, const u32* middle) {
    const u32* own = middle + picture.middle;
    const Axis axis = axis_at(slot, picture.down_first ? picture.across_at : picture.down_at);
    if (picture.down_first) {
        return weigh(axis, x, [&](i32 column) { return own[y * picture.middle_width + column]; });
    }
    return weigh(axis, y, [&](i32 row) { return own[row * picture.middle_width + x]; });
}

// Where the results go, and as what: channel c of a pixel becomes values[256 * c + byte], numbers of `bytes` bytes each.
// Steps count such numbers.
struct Output {
    u8* data;
    const u8* values;
    u64 picture_step;
    u32 channel_step, row_step, column_step;
    u32 bytes;
};

SLIP_BOTH void put_pixel(const Output& out, u32 place, u32 x, u32 y, u32 pixel) {
    const u64 at = place * out.picture_step + static_cast<u64>(y) * out.row_step + x * out.column_step;
    for (int c = 0; c < 3; ++c) {
        const u64 to = at + c * out.channel_step;
        const u32 from = 256 * c + channel_of(pixel, c);
        if (out.bytes == 1) {
            out.data[to] = out.values[from];
        } else if (out.bytes == 2) {
            reinterpret_cast<u16*>(out.data)[to] = reinterpret_cast<const u16*>(out.values)[from];
        } else {
            reinterpret_cast<u32*>(out.data)[to] = reinterpret_cast<const u32*>(out.values)[from];
        }
    }
}

SLIP_BOTH void finish_pixel(const u8* slot, const Picture& picture, u32 x, u32 y, const u32* middle, const Output& out) {
    const Head& head = head_of(slot);
    const u32 pixel = second_pass(slot, picture, x, y, middle);
    put_pixel(out, picture.place, picture.mirror ? head.width - 1 - x : x,
              picture.upside_down ? head.height - 1 - y : y, pixel);
}

}  // namespace slip::cuda
