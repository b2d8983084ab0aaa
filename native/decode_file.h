// Whole JPEG files through libjpeg, for those that the engine's own decoder leaves alone
// (progressive, several scans, …).
#pragma once

#include <cstddef>
#include <cstdint>

#include "buffer.h"
#include "status.h"

namespace slip {

struct FileSize {
    int width = 0, height = 0;
};

// RGB, 3 bytes a pixel, rows without gaps. `unsupported` where Pillow would not give RGB or gray,
// and where libjpeg warns.
Status decode_file_whole(const std::uint8_t* data, std::size_t size, Buffer& pixels,
                         FileSize& picture);

}  // namespace slip
