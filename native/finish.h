// From RGB rows of a crop to the target: resize, flip.
#pragma once

#include <cstring>

#include "crop.h"
#include "decode.h"
#include "kernels.h"
#include "resize.h"
#include "scratch.h"

namespace slip {
namespace SLIP_ISA {

// Rows of a crop of pixels that are there already.
struct PixelRows {
    const std::uint8_t* corner;
    std::size_t stride;
    int width;

    void read(int y, std::uint8_t* out, std::size_t plane) const {
        separate(corner + y * stride, width, out, out + plane, out + 2 * plane);
    }
};

// Turns the rows of a crop into the target. A row is three rows of bytes, red, green and blue;
// `Rows` gives them one after the other. They are taken as soon as they can be had, while what they
// are made of is still in the cache.
class Finisher {
  public:
    Status begin(const Needed& needed, const Target& target, Scratch& scratch) {
        target_ = &target;
        scratch_ = &scratch;
        width_ = needed.box.width;
        height_ = needed.box.height;
        next_row_ = next_output_ = 0;
        const bool same =
            needed.across.input == needed.across.output && needed.down.input == needed.down.output;
        if (target.filter == Filter::nearest && !same) return begin_nearest(needed);
        Axis &across = scratch.horizontal, &down = scratch.vertical;
        if (!across.prepare(needed.across, target.filter, Direction::across, target.mirror) ||
            !down.prepare(needed.down, target.filter, Direction::down, target.upside_down)) {
            return Status::memory;
        }
        way_ = !across.identity && !down.identity &&
                       vertical_first(needed.across, needed.down, target.order)
                   ? Way::down_across
                   : Way::across_down;
        plane_ = padded(width_ + across.taps);
        narrow_plane_ = grouped(target.width);
        const std::size_t all_rows = static_cast<std::size_t>(height_) + down.taps;
        const std::size_t whole = way_ == Way::down_across ? all_rows : 0,
                          narrow = way_ == Way::down_across ? 0 : all_rows;
        return scratch.rows.reserve((whole + 1) * 3 * plane_) &&
                       scratch.narrowed.reserve((narrow + 1) * 3 * narrow_plane_)
                   ? Status::ok
                   : Status::memory;
    }

    // All rows are there. In steps, so that a row is used again before it leaves the cache.
    template <class Rows>
    void take_all(Rows& rows) {
        constexpr int step = 16;
        for (int ready = step; ready < height_; ready += step) advance(rows, ready);
        advance(rows, height_);
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

    // Multiples of 16, so that three rows are one to the vertical pass.
    static std::size_t grouped(int width) {
        return (static_cast<std::size_t>(width) + kOutputGroup - 1) / kOutputGroup * kOutputGroup;
    }
    // With room for what the horizontal pass reads behind a row.
    static std::size_t padded(int width) { return grouped(width + kWindow); }

    std::uint8_t* target_row(int y) const {
        return target_->pixels + std::size_t{3} * target_->width * y;
    }

    void store(const std::uint8_t* row, std::size_t plane, int y) const {
        interleave(row, row + plane, row + 2 * plane, target_->width, target_row(y));
    }

    Status begin_nearest(const Needed& needed) {
        way_ = Way::nearest;
        plane_ = padded(width_);
        narrow_plane_ = grouped(target_->width);
        return nearest_positions(needed.across, scratch_->columns) &&
                       nearest_positions(needed.down, scratch_->lines) &&
                       scratch_->rows.reserve(3 * plane_) &&
                       scratch_->narrowed.reserve(3 * narrow_plane_)
                   ? Status::ok
                   : Status::memory;
    }

    template <class Rows>
    void advance_nearest(Rows& rows, int ready) {
        const auto *columns = scratch_->columns.as<std::int32_t>(),
                   *lines = scratch_->lines.as<std::int32_t>();
        const int width = target_->width;
        std::uint8_t *row = scratch_->rows.data(), *picked = scratch_->narrowed.data();
        for (; next_output_ < target_->height && lines[next_output_] < ready; ++next_output_) {
            const int line = lines[next_output_];
            if (line >= next_row_) {
                rows.read(line, row, plane_);
                next_row_ = line + 1;
            }
            for (int c = 0; c < 3; ++c) {
                for (int x = 0; x < width; ++x) {
                    const int column = columns[target_->mirror ? width - 1 - x : x];
                    picked[c * narrow_plane_ + x] =
                        line < 0 || column < 0 ? 0 : row[c * plane_ + column];
                }
            }
            store(picked, narrow_plane_,
                  target_->upside_down ? target_->height - 1 - next_output_ : next_output_);
        }
    }

    // Without a horizontal pass there is still the mirror.
    void narrow(const std::uint8_t* row, std::uint8_t* out) const {
        const Axis& across = scratch_->horizontal;
        if (!across.identity) return across_pass(row, plane_, across, out, narrow_plane_);
        for (int c = 0; c < 3; ++c, row += plane_, out += narrow_plane_) {
            if (target_->mirror) {
                for (int x = 0; x < width_; ++x) out[x] = row[width_ - 1 - x];
            } else {
                std::memcpy(out, row, static_cast<std::size_t>(width_));
            }
        }
    }

    // Whether all rows that the next output row is made of lie before `ready`.
    bool output_ready(int ready) const {
        if (next_output_ == target_->height) return false;
        const Axis& down = scratch_->vertical;
        return ready == height_ || down.first[next_output_] + down.taps <= ready;
    }

    template <class Rows>
    void advance_across_down(Rows& rows, int ready) {
        const Axis &across = scratch_->horizontal, &down = scratch_->vertical;
        std::uint8_t *row = scratch_->rows.data(), *narrowed = scratch_->narrowed.data();
        if (down.identity) {
            const bool as_it_is = across.identity && !target_->mirror;
            for (; next_row_ < ready; ++next_row_) {
                rows.read(next_row_, row, plane_);
                if (!as_it_is) narrow(row, narrowed);
                store(as_it_is ? row : narrowed, as_it_is ? plane_ : narrow_plane_,
                      target_->upside_down ? target_->height - 1 - next_row_ : next_row_);
            }
            return;
        }
        const std::size_t stride = 3 * narrow_plane_;
        for (; next_row_ < ready; ++next_row_) {
            rows.read(next_row_, row, plane_);
            narrow(row, narrowed + next_row_ * stride);
        }
        std::uint8_t* finished =
            narrowed + (static_cast<std::size_t>(height_) + down.taps) * stride;
        for (; output_ready(ready); ++next_output_) {
            down_pass(narrowed, stride, down, next_output_, static_cast<int>(stride), finished);
            store(finished, narrow_plane_, next_output_);
        }
    }

    template <class Rows>
    void advance_down_across(Rows& rows, int ready) {
        const Axis& down = scratch_->vertical;
        const std::size_t stride = 3 * plane_;
        std::uint8_t *whole = scratch_->rows.data(), *narrowed = scratch_->narrowed.data();
        std::uint8_t* shortened = whole + (static_cast<std::size_t>(height_) + down.taps) * stride;
        for (; next_row_ < ready; ++next_row_)
            rows.read(next_row_, whole + next_row_ * stride, plane_);
        for (; output_ready(ready); ++next_output_) {
            down_pass(whole, stride, down, next_output_, static_cast<int>(stride), shortened);
            narrow(shortened, narrowed);
            store(narrowed, narrow_plane_, next_output_);
        }
    }

    const Target* target_;
    Scratch* scratch_;
    Way way_;
    int width_, height_;
    int next_row_, next_output_;
    std::size_t plane_, narrow_plane_;  // bytes from one colour of a row to the next, before and
                                        // after the horizontal pass
};

}  // namespace SLIP_ISA
}  // namespace slip
