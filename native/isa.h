// The functions of decode.cpp, convert.cpp and update.cpp as compiled for each instruction set.
#pragma once

#include "decode.h"
#include "update.h"

namespace slip {

#define SLIP_DECLARE(isa)                                                                          \
    namespace isa {                                                                                \
    Status decode_picture(const Picture& picture, const Box& box, const Target& target,            \
                          Scratch& scratch);                                                       \
    Status resize_picture(const std::uint8_t* pixels, int width, int height, const Target& target, \
                          Scratch& scratch);                                                       \
    void separate_pixels(const std::uint8_t* pixels, std::size_t count, std::uint8_t* planes,      \
                         std::size_t plane);                                                       \
    void look_up_pixels(const std::uint8_t* pixels, std::size_t count, const float* tables,        \
                        float* planes, std::size_t plane);                                         \
    void update_moments(const std::vector<Updated>& group, const AdamRates& rates);                \
    void update_values(const std::vector<Updated>& group, const AdamRates& rates);                 \
    void update_by_sgd(const std::vector<Updated>& group, const SgdRates& rates);                  \
    }

SLIP_DECLARE(baseline)
SLIP_DECLARE(modern)

#undef SLIP_DECLARE

}  // namespace slip
