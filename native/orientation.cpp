#include "orientation.h"

#include <cstring>
#include <utility>

namespace slip {
namespace {

// Where the orientation's value stands in the markers, and in which byte order; position 0:
// nowhere.
struct Entry {
    std::size_t position = 0;
    bool big_endian = false;
};

class Tiff {
  public:
    Tiff(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {
        big_ = size >= 2 && data[0] == 'M';
        valid_ = size >= 8 && (!std::memcmp(data, "II*\0", 4) || !std::memcmp(data, "MM\0*", 4));
    }

    // Offset of the orientation's value in the first directory, or 0.
    std::size_t find() const {
        if (!valid_) return 0;
        const std::size_t directory = u32(4);
        if (directory < 8 || directory + 2 > size_) return 0;
        const std::size_t count = u16(directory);
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t entry = directory + 2 + 12 * i;
            if (entry + 12 > size_) return 0;
            if (u16(entry) == 0x0112) return value_of(entry);
        }
        return 0;
    }

    bool big_endian() const { return big_; }

  private:
    // Where the 16 bits of a single SHORT or LONG stand.
    std::size_t value_of(std::size_t entry) const {
        const std::size_t type = u16(entry + 2);
        if (u32(entry + 4) != 1 || (type != 3 && type != 4)) return 0;
        return entry + 8 + (type == 4 && big_ ? 2 : 0);
    }

    std::size_t u16(std::size_t at) const {
        return big_ ? data_[at] << 8 | data_[at + 1] : data_[at + 1] << 8 | data_[at];
    }
    std::size_t u32(std::size_t at) const {
        return big_ ? u16(at) << 16 | u16(at + 2) : u16(at + 2) << 16 | u16(at);
    }

    const std::uint8_t* data_;
    std::size_t size_;
    bool big_, valid_;
};

Entry find_entry(const Bytes& markers) {
    for (std::size_t pos = 0; pos + 4 <= markers.size();) {
        const std::size_t length = markers[pos + 2] << 8 | markers[pos + 3];
        if (length < 2 || pos + 2 + length > markers.size()) break;
        const std::uint8_t* content = markers.data() + pos + 4;
        if (markers[pos + 1] == 0xE1 && length >= 8 && !std::memcmp(content, "Exif\0\0", 6)) {
            const Tiff tiff(content + 6, length - 8);
            const std::size_t at = tiff.find();
            return at ? Entry{pos + 10 + at, tiff.big_endian()} : Entry{};
        }
        pos += 2 + length;
    }
    return {};
}

// What an orientation does: swap the axes first, then mirror.
struct Turn {
    bool swap, mirror_x, mirror_y;
};

constexpr Turn kTurns[9] = {{},
                            {false, false, false},
                            {false, true, false},
                            {false, true, true},
                            {false, false, true},
                            {true, false, false},
                            {true, true, false},
                            {true, true, true},
                            {true, false, true}};

// The coefficient of horizontal frequency u and vertical frequency v changes sign for odd u where x
// is mirrored, odd v where y is.
void turn_block(const std::int16_t* in, Turn turn, std::int16_t* out) {
    for (int v = 0; v < 8; ++v) {
        for (int u = 0; u < 8; ++u) {
            const int value = turn.swap ? in[8 * u + v] : in[8 * v + u];
            const bool negate = (turn.mirror_x && (u & 1)) != (turn.mirror_y && (v & 1));
            out[8 * v + u] = static_cast<std::int16_t>(negate ? -value : value);
        }
    }
}

Plane turn_plane(const Plane& in, Turn turn) {
    Plane out;
    out.width_blocks = turn.swap ? in.height_blocks : in.width_blocks;
    out.height_blocks = turn.swap ? in.width_blocks : in.height_blocks;
    out.blocks.resize(in.blocks.size());
    for (int y = 0; y < out.height_blocks; ++y) {
        for (int x = 0; x < out.width_blocks; ++x) {
            const int from_x = turn.mirror_x ? out.width_blocks - 1 - x : x;
            const int from_y = turn.mirror_y ? out.height_blocks - 1 - y : y;
            turn_block(turn.swap ? in.block(from_x, from_y) : in.block(from_y, from_x), turn,
                       out.block(y, x));
        }
    }
    for (int v = 0; v < 8; ++v) {
        for (int u = 0; u < 8; ++u)
            out.quant[8 * v + u] = turn.swap ? in.quant[8 * u + v] : in.quant[8 * v + u];
    }
    return out;
}

}  // namespace

int find_orientation(const Bytes& markers) {
    const Entry entry = find_entry(markers);
    if (!entry.position) return 1;
    const std::uint8_t* p = markers.data() + entry.position;
    const int value = entry.big_endian ? p[0] << 8 | p[1] : p[1] << 8 | p[0];
    return value >= 1 && value <= 8 ? value : 1;
}

bool apply_orientation(Coefficients& picture, int orientation) {
    const Turn turn = kTurns[orientation];
    Frame frame = picture.frame;
    if (turn.swap) {
        std::swap(frame.width, frame.height);
        for (int c = 0; c < frame.component_count; ++c)
            std::swap(frame.components[c].h, frame.components[c].v);
    }
    if (!complete_frame(frame)) return false;
    if (turn.mirror_x && frame.width % frame.mcu_width() != 0) return false;
    if (turn.mirror_y && frame.height % frame.mcu_height() != 0) return false;
    picture.frame = frame;
    for (int c = 0; c < frame.component_count; ++c)
        picture.planes[c] = turn_plane(picture.planes[c], turn);
    const Entry entry = find_entry(picture.markers);
    if (entry.position) {
        picture.markers[entry.position] = entry.big_endian ? 0 : 1;
        picture.markers[entry.position + 1] = entry.big_endian ? 1 : 0;
    }
    return true;
}

}  // namespace slip
