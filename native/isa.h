// The functions of decode.cpp as compiled for each instruction set.
#pragma once

#include "decode.h"

namespace slip {

#define SLIP_DECLARE(isa)                                                                          \
    namespace isa {                                                                                \
    Status decode_picture(const Picture& picture, const Box& box, const Target& target,            \
                          Scratch& scratch);                                                       \
    Status resize_picture(const std::uint8_t* pixels, int width, int height, const Target& target, \
                          Scratch& scratch);                                                       \
    }

SLIP_DECLARE(baseline)
SLIP_DECLARE(modern)

#undef SLIP_DECLARE

}  // namespace slip
