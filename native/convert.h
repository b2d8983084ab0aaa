// Pixels, red green blue red green blue …, into three planes, as networks take them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slip {

// `count` pixels; the planes begin `plane` elements apart.
void separate_pixels(const std::uint8_t* pixels, std::size_t count, std::uint8_t* planes,
                     std::size_t plane);

// The same with every value replaced by its entry in the colour's table: tables[colour][value].
void look_up_pixels(const std::uint8_t* pixels, std::size_t count, const float* tables,
                    float* planes, std::size_t plane);

}  // namespace slip
