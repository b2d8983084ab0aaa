// EXIF orientation: finding it, and turning a picture upright without touching a coefficient's
// value.
#pragma once

#include "coefficients.h"

namespace slip {

// 1 to 8, from the first EXIF marker; 1 where there is none or it makes no sense.
int find_orientation(const Bytes& markers);

// Turns the picture upright and sets the orientation in its markers to 1. False, and nothing
// changed, where an edge that would move to the left or the top does not lie on an MCU boundary.
bool apply_orientation(Coefficients& picture, int orientation);

}  // namespace slip
