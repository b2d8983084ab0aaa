// What of a picture a target needs: which MCUs, which pixels, which inputs of each direction of the
// resize.
#pragma once

#include "decode.h"
#include "jpeg_header.h"
#include "resize_weights.h"

namespace slip {

// MCUs to decode: columns [left, right) of rows [top, bottom).
struct Region {
    int left, right, top, bottom;
};

// What a target needs: parts of the two directions, and the box of the picture they are made of.
struct Needed {
    Stretch across, down;
    Box box;
};

bool is_inside(const Box& box, int width, int height);

// The MCUs of a box, and of the pixels around it that chroma upsampling looks at.
Region region_of(const Frame& frame, const Box& box);

// False if the target's window is not inside the resized crop.
bool needed_for(const Target& target, const Box& box, Needed& needed);

// The order hangs on the whole resize, however little of it is wanted.
bool vertical_first(const Stretch& across, const Stretch& down, PassOrder order);

}  // namespace slip
