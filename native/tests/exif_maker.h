// EXIF marker segments, sound and hostile.
#pragma once

#include <utility>

#include "jpeg_maker.h"

namespace testing {

// Writes numbers in the byte order of a TIFF structure.
class TiffWriter {
  public:
    explicit TiffWriter(bool big_endian) : big_(big_endian) {
        bytes_ = big_ ? Bytes{'M', 'M', 0, '*'} : Bytes{'I', 'I', '*', 0};
    }
    void u16(unsigned value) {
        const auto high = static_cast<std::uint8_t>(value >> 8),
                   low = static_cast<std::uint8_t>(value);
        bytes_.push_back(big_ ? high : low);
        bytes_.push_back(big_ ? low : high);
    }
    void u32(unsigned value) {
        u16(big_ ? value >> 16 : value & 0xFFFF);
        u16(big_ ? value & 0xFFFF : value >> 16);
    }
    void entry(unsigned tag, unsigned type, unsigned count, unsigned value) {
        u16(tag);
        u16(type);
        u32(count);
        u16(value);
        u16(0);
    }
    void zeros(int count) { bytes_.insert(bytes_.end(), static_cast<std::size_t>(count), 0); }
    const Bytes& bytes() const { return bytes_; }

  private:
    bool big_;
    Bytes bytes_;
};

inline Bytes marker_segment(int marker, const Bytes& content) {
    const std::size_t length = content.size() + 2;
    Bytes out{0xFF, static_cast<std::uint8_t>(marker), static_cast<std::uint8_t>(length >> 8),
              static_cast<std::uint8_t>(length)};
    out.insert(out.end(), content.begin(), content.end());
    return out;
}

inline Bytes exif_segment(const Bytes& tiff) {
    Bytes content{'E', 'x', 'i', 'f', 0, 0};
    content.insert(content.end(), tiff.begin(), tiff.end());
    return marker_segment(0xE1, content);
}

// A directory with a few other entries around the orientation.
inline Bytes exif_with_orientation(int orientation, bool big_endian, int gap = 0) {
    TiffWriter tiff(big_endian);
    tiff.u32(static_cast<unsigned>(8 + gap));
    tiff.zeros(gap);
    tiff.u16(3);
    tiff.entry(0x010F, 2, 4, 0x4142);
    tiff.entry(0x0112, 3, 1, static_cast<unsigned>(orientation));
    tiff.entry(0x0131, 2, 2, 0x4100);
    tiff.u32(0);
    return exif_segment(tiff.bytes());
}

}  // namespace testing
