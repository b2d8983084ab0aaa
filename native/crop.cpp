#include "crop.h"

#include <algorithm>

namespace slip {

bool is_inside(const Box& box, int width, int height) {
    return box.width > 0 && box.height > 0 && box.x >= 0 && box.y >= 0 &&
           box.width <= width - box.x && box.height <= height - box.y;
}

Region region_of(const Frame& frame, const Box& box) {
    // The triangle filter looks one chroma sample, here one pixel, beyond the crop.
    const int margin_x = frame.h_max > 1, margin_y = frame.v_max > 1;
    const int x_end = std::min(box.x + box.width + margin_x, frame.width);
    const int y_end = std::min(box.y + box.height + margin_y, frame.height);
    return {std::max(box.x - margin_x, 0) / frame.mcu_width(),
            Frame::ceil_div(x_end, frame.mcu_width()),
            std::max(box.y - margin_y, 0) / frame.mcu_height(),
            Frame::ceil_div(y_end, frame.mcu_height())};
}

bool needed_for(const Target& target, const Box& box, Needed& needed) {
    const Window whole{target.width, target.height, 0, 0};
    const Window& window = target.window ? *target.window : whole;
    const auto fits = [](int full, int first, int count) {
        return full <= kLongestSide && first >= 0 && count <= full && first <= full - count;
    };
    if (!fits(window.full_width, window.left, target.width) ||
        !fits(window.full_height, window.top, target.height)) {
        return false;
    }
    needed.across =
        stretch_of(box.width, window.full_width, window.left, target.width, target.filter);
    needed.down =
        stretch_of(box.height, window.full_height, window.top, target.height, target.filter);
    needed.box = {box.x + needed.across.begin, box.y + needed.down.begin, needed.across.size,
                  needed.down.size};
    return true;
}

bool vertical_first(const Stretch& across, const Stretch& down, PassOrder order) {
    switch (order) {
        case PassOrder::horizontal_first: return false;
        case PassOrder::tall_first:
            return down.input > std::int64_t{100} * across.input && down.output < down.input;
        case PassOrder::taller_first:
            return down.input > down.output &&
                   down.input - down.output > 2 * (across.input - across.output);
    }
    return false;
}

}  // namespace slip
