// A JPEG file into a tile record.
#pragma once

#include <string>

#include "coefficients.h"

namespace slip {

struct Rewritten {
    Status status = Status::ok;
    std::string message;  // empty when ok
    Bytes record;         // empty unless ok
    int width = 0, height = 0;
    int orientation = 1;             // still to be applied by whoever shows the picture
    std::size_t trailing_bytes = 0;  // of the file, behind the JPEG's end; not kept
    bool oriented = false;           // the picture was turned upright
};

// Never throws: a file that cannot be rewritten, or no memory for it, is a status.
Rewritten rewrite_jpeg(const std::uint8_t* data, std::size_t size, bool orient);

}  // namespace slip
