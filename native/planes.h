// Decoded samples of a region, component by component, and the rows of red, green and blue that
// come of them.
#pragma once

#include <algorithm>
#include <cstring>

#include "crop.h"
#include "decode.h"
#include "idct.h"
#include "kernels.h"
#include "scratch.h"

namespace slip {
namespace SLIP_ISA {

// Decoded samples of one component. Sample (x, y) of the whole plane is data[(y - top) * stride + x
// - left].
struct Samples {
    const std::uint8_t* data;
    std::ptrdiff_t stride;
    int left, top, right;           // right: end of what was decoded
    int plane_width, plane_height;  // true size of the whole plane
    int h_ratio, v_ratio;
};

// Where decoded blocks go.
class Planes {
  public:
    bool prepare(const JpegHeader& header, const Region& region, Scratch& scratch) {
        frame_ = &header.frame;
        region_ = region;
        for (int c = 0; c < frame_->component_count; ++c) {
            const Component& component = frame_->components[c];
            const int width = (region.right - region.left) * component.h * 8;
            const int height = (region.bottom - region.top) * component.v * 8;
            stride_[c] =
                width +
                32;  // not a power of two: rows of a block shall not compete for one cache set
            if (!scratch.planes[c].reserve(static_cast<std::size_t>(stride_[c]) * height))
                return false;
            data_[c] = scratch.planes[c].data();
            for (int k = 0; k < 64; ++k) {
                quant_[c][k] = static_cast<std::int16_t>(header.quant[component.quant][k]);
            }
        }
        return true;
    }

    // Transforms the blocks of `count` MCUs that start at `column`.
    void put(int row, int column, int count, const std::int16_t* block,
             const std::uint8_t* last) const {
        Transform transform;
        for (int m = 0; m < count; ++m) {
            for (int c = 0; c < frame_->component_count; ++c) {
                const Component& component = frame_->components[c];
                std::uint8_t* corner = data_[c] +
                                       (row - region_.top) * component.v * 8 * stride_[c] +
                                       (column + m - region_.left) * component.h * 8;
                for (int y = 0; y < component.v; ++y) {
                    for (int x = 0; x < component.h; ++x, block += 64, ++last) {
                        std::uint8_t* out = corner + y * 8 * stride_[c] + x * 8;
                        transform.add(block, *last, quant_[c], out, stride_[c]);
                    }
                }
            }
        }
        transform.finish();
    }

    Samples samples(int c) const {
        const Component& component = frame_->components[c];
        return {data_[c],
                stride_[c],
                region_.left * component.h * 8,
                region_.top * component.v * 8,
                std::min(region_.right * component.h * 8, frame_->plane_width(c)),
                frame_->plane_width(c),
                frame_->plane_height(c),
                frame_->h_max / component.h,
                frame_->v_max / component.v};
    }

  private:
    const Frame* frame_;
    Region region_;
    std::ptrdiff_t stride_[kMaxComponents];
    std::uint8_t* data_[kMaxComponents];
    alignas(16) std::int16_t quant_[kMaxComponents][64];
};

// rows of red, green and blue of the crop, made from decoded samples when asked for.
class PlaneRows {
  public:
    bool prepare(const Planes& planes, const JpegHeader& header, const Box& box, Scratch& scratch) {
        box_ = box;
        colour_ = header.colour;
        count_ = header.frame.component_count;
        const std::size_t row_bytes = static_cast<std::size_t>(box.width) + 64;
        if (!scratch.upsampled.reserve(kMaxComponents * row_bytes) ||
            !scratch.sums.reserve((row_bytes + 2) * sizeof(std::uint16_t))) {
            return false;
        }
        for (int c = 0; c < count_; ++c) {
            samples_[c] = planes.samples(c);
            upsampled_[c] = scratch.upsampled.data() + c * row_bytes;
        }
        sums_ = scratch.sums.as<std::uint16_t>() + 1;
        return true;
    }

    // Red, green and blue of row y, `plane` bytes apart. Up to 15 bytes behind each are
    // overwritten.
    void read(int y, std::uint8_t* out, std::size_t plane) {
        const std::uint8_t* component[kMaxComponents];
        for (int c = 0; c < count_; ++c) component[c] = row(samples_[c], box_.y + y, upsampled_[c]);
        if (colour_ == Colour::ycc) {
            return ycc_to_rgb(component[0], component[1], component[2], box_.width, out,
                              out + plane, out + 2 * plane);
        }
        for (int c = 0; c < 3; ++c) {
            std::memcpy(out + c * plane, component[colour_ == Colour::gray ? 0 : c],
                        static_cast<std::size_t>(box_.width));
        }
    }

  private:
    static const std::uint8_t* line(const Samples& s, int y, int x) {
        return s.data + (y - s.top) * s.stride + (x - s.left);
    }

    const std::uint8_t* row(const Samples& s, int y, std::uint8_t* out) {
        if (s.h_ratio == 1 && s.v_ratio == 1) return line(s, y, box_.x);
        const bool smooth_x = s.h_ratio == 2 && s.plane_width > 2;
        if (smooth_x && s.v_ratio <= 2) return triangle_row(s, y, out);
        if (s.h_ratio == 1 && s.v_ratio == 2) {
            blend_rows(line(s, y / 2, box_.x), line(s, near_row(s, y), box_.x), box_.width,
                       y & 1 ? 2 : 1, out);
            return out;
        }
        const std::uint8_t* in = line(s, y / s.v_ratio, s.left);
        for (int x = 0; x < box_.width; ++x) out[x] = in[(box_.x + x) / s.h_ratio - s.left];
        return out;
    }

    // The chroma row above for even rows, below for odd ones; the picture's edge repeats itself.
    static int near_row(const Samples& s, int y) {
        return y & 1 ? std::min(y / 2 + 1, s.plane_height - 1) : std::max(y / 2 - 1, 0);
    }

    const std::uint8_t* triangle_row(const Samples& s, int y, std::uint8_t* out) {
        const int first = box_.x / 2, end = (box_.x + box_.width - 1) / 2 + 1;
        // One more on each side, where the plane has it; its edge repeats itself.
        const int from = std::max(first - 1, s.left), to = std::min(end + 1, s.right);
        const int j = y / s.v_ratio;
        const std::uint8_t* near = s.v_ratio == 2 ? line(s, near_row(s, y), from) : nullptr;
        column_sums(line(s, j, from), near, to - from, sums_ + (from - first));
        if (from == first) sums_[-1] = sums_[0];
        if (to == end) sums_[end - first] = sums_[end - first - 1];
        if (near) {
            widen<8, 7, 4>(sums_, end - first, out);
        } else {
            widen<1, 2, 2>(sums_, end - first, out);
        }
        return out + (box_.x & 1);
    }

    Box box_;
    Colour colour_;
    int count_;
    Samples samples_[kMaxComponents];
    std::uint8_t* upsampled_[kMaxComponents];
    std::uint16_t* sums_;
};

}  // namespace SLIP_ISA
}  // namespace slip
