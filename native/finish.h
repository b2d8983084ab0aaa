// From RGB rows of a crop to the target: resize, flip.
#pragma once

#include <cstring>

#include "decode.h"
#include "resize.h"
#include "scratch.h"

namespace slip {
namespace SLIP_ISA {

// RGB rows of a crop of pixels that are there already.
struct PixelRows {
    const std::uint8_t* corner;
    std::size_t stride;
    int width;

    void read(int y, std::uint8_t* out) const {
        std::memcpy(out, corner + y * stride, std::size_t{3} * width);
    }
};

inline void copy_row(const std::uint8_t* in, int width, bool mirror, std::uint8_t* out) {
    if (!mirror) {
        std::memcpy(out, in, std::size_t{3} * width);
        return;
    }
    in += std::size_t{3} * width;
    for (int x = 0; x < width; ++x, out += 3) {
        in -= 3;
        out[0] = in[0];
        out[1] = in[1];
        out[2] = in[2];
    }
}

inline std::uint8_t* target_row(const Target& target, int y) {
    const int row = target.upside_down ? target.height - 1 - y : y;
    return target.pixels + std::size_t{3} * target.width * row;
}

inline bool vertical_first(int width, int height, const Target& target) {
    switch (target.order) {
        case PassOrder::horizontal_first: return false;
        case PassOrder::tall_first:
            return height > std::int64_t{100} * width && target.height < height;
        case PassOrder::taller_first:
            return height > target.height && height - target.height > 2 * (width - target.width);
    }
    return false;
}

// Turns the rows of a crop into the target. Rows are taken as soon as they can be had, while what
// they are made of is still in the cache.
class Finisher {
  public:
    Status begin(int width, int height, const Target& target, Scratch& scratch) {
        target_ = &target;
        scratch_ = &scratch;
        height_ = height;
        next_row_ = next_output_ = 0;
        const bool same = width == target.width && height == target.height;
        if (target.filter == Filter::nearest && !same) {
            way_ = Way::nearest;
            return nearest_positions(width, target.width, scratch.columns) &&
                           nearest_positions(height, target.height, scratch.lines) &&
                           scratch.rows.reserve(std::size_t{3} * width)
                       ? Status::ok
                       : Status::memory;
        }
        Axis &across = scratch.horizontal, &down = scratch.vertical;
        if (!across.prepare(width, target.width, target.filter) ||
            !down.prepare(height, target.height, target.filter)) {
            return Status::memory;
        }
        way_ = !across.identity && !down.identity && vertical_first(width, height, target)
                   ? Way::down_across
                   : Way::across_down;
        row_stride_ = std::size_t{3} * (width + across.taps) + 32;
        narrow_stride_ = std::size_t{3} * target.width + 16;
        const std::size_t all_rows = static_cast<std::size_t>(height) + down.taps;
        const bool ok = way_ == Way::down_across
                            ? scratch.rows.reserve((all_rows + 1) * row_stride_) &&
                                  scratch.narrowed.reserve(narrow_stride_)
                            : scratch.rows.reserve(row_stride_) &&
                                  scratch.narrowed.reserve(all_rows * narrow_stride_);
        return ok ? Status::ok : Status::memory;
    }

    // Rows before `ready` can be read.
    template <class Rows>
    void advance(Rows& rows, int ready) {
        switch (way_) {
            case Way::nearest: advance_nearest(rows, ready); break;
            case Way::across_down: advance_across_down(rows, ready); break;
            case Way::down_across: advance_down_across(rows, ready); break;
        }
    }

  private:
    enum class Way { nearest, across_down, down_across };

    template <class Rows>
    void advance_nearest(Rows& rows, int ready) {
        const auto *columns = scratch_->columns.as<std::int32_t>(),
                   *lines = scratch_->lines.as<std::int32_t>();
        const int width = target_->width;
        std::uint8_t* row = scratch_->rows.data();
        for (; next_output_ < target_->height && lines[next_output_] < ready; ++next_output_) {
            const int line = lines[next_output_];
            if (line >= 0 && line >= next_row_) {
                rows.read(line, row);
                next_row_ = line + 1;
            }
            std::uint8_t* out = target_row(*target_, next_output_);
            for (int x = 0; x < width; ++x, out += 3) {
                const int column = columns[target_->mirror ? width - 1 - x : x];
                if (line < 0 || column < 0) {
                    out[0] = out[1] = out[2] = 0;
                } else {
                    std::memcpy(out, row + std::size_t{3} * column, 3);
                }
            }
        }
    }

    // Whether all rows that the next output row is made of lie before `ready`.
    bool output_ready(int ready) const {
        if (next_output_ == target_->height) return false;
        const Axis& down = scratch_->vertical;
        return ready == height_ ||
               (!down.identity && down.first[next_output_] + down.taps <= ready);
    }

    template <class Rows>
    void advance_across_down(Rows& rows, int ready) {
        const Axis &across = scratch_->horizontal, &down = scratch_->vertical;
        const int width = target_->width;
        std::uint8_t* row = scratch_->rows.data();
        for (; next_row_ < ready; ++next_row_) {
            std::uint8_t* out = scratch_->narrowed.data() + next_row_ * narrow_stride_;
            rows.read(next_row_, row);
            if (across.identity) {
                copy_row(row, width, target_->mirror, out);
            } else {
                horizontal_pass(row, across, target_->mirror, out);
            }
            if (down.identity)
                std::memcpy(target_row(*target_, next_row_), out, std::size_t{3} * width);
        }
        if (down.identity) return;
        for (; output_ready(ready); ++next_output_) {
            vertical_row(scratch_->narrowed.data(), narrow_stride_, down, next_output_, 3 * width,
                         target_row(*target_, next_output_));
        }
    }

    template <class Rows>
    void advance_down_across(Rows& rows, int ready) {
        const Axis &across = scratch_->horizontal, &down = scratch_->vertical;
        std::uint8_t* whole = scratch_->rows.data();
        std::uint8_t* shortened =
            whole + (static_cast<std::size_t>(height_) + down.taps) * row_stride_;
        for (; next_row_ < ready; ++next_row_)
            rows.read(next_row_, whole + next_row_ * row_stride_);
        for (; output_ready(ready); ++next_output_) {
            vertical_row(whole, row_stride_, down, next_output_, 3 * across.input, shortened);
            horizontal_pass(shortened, across, target_->mirror, scratch_->narrowed.data());
            std::memcpy(target_row(*target_, next_output_), scratch_->narrowed.data(),
                        std::size_t{3} * target_->width);
        }
    }

    const Target* target_;
    Scratch* scratch_;
    Way way_;
    int height_;
    int next_row_, next_output_;
    std::size_t row_stride_, narrow_stride_;
};

}  // namespace SLIP_ISA
}  // namespace slip
