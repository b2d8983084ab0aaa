#include "rewrite.h"

#include <new>

#include "orientation.h"
#include "tile_record.h"

namespace slip {
namespace {

void rewrite(const std::uint8_t* data, std::size_t size, bool orient, Rewritten& out) {
    Coefficients picture;
    const ReadResult read = read_coefficients(data, size, picture);
    if (read.status != Status::ok) {
        out.status = read.status;
        out.message = read.message;
        return;
    }
    out.trailing_bytes = read.trailing_bytes;
    out.orientation = find_orientation(picture.markers);
    if (orient && out.orientation != 1 && apply_orientation(picture, out.orientation)) {
        out.orientation = 1;
        out.oriented = true;
    }
    out.width = picture.frame.width;
    out.height = picture.frame.height;
    out.status = encode_tile_record(picture, out.record);
    if (out.status != Status::ok) out.message = "a coefficient is beyond the range of 8-bit JPEG";
}

}  // namespace

Rewritten rewrite_jpeg(const std::uint8_t* data, std::size_t size, bool orient) {
    Rewritten out;
    try {
        rewrite(data, size, orient, out);
    } catch (const std::bad_alloc&) {
        out = Rewritten{};
        out.status = Status::memory;
        out.message = status_text(Status::memory);
    }
    return out;
}

}  // namespace slip
