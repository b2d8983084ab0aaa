#include "jpeg_header.h"

#include <algorithm>
#include <cstring>

namespace slip {

const std::uint8_t kNatural[192] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34,
    27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
};

namespace {

enum Marker : int {
    SOF0 = 0xC0,
    SOF1 = 0xC1,
    DHT = 0xC4,
    RST0 = 0xD0,
    SOI = 0xD8,
    EOI = 0xD9,
    SOS = 0xDA,
    DQT = 0xDB,
    DRI = 0xDD,
    APP0 = 0xE0,
    APP14 = 0xEE,
    APP15 = 0xEF,
    COM = 0xFE,
};

struct Segment {
    const std::uint8_t* data;
    std::size_t size;
};

int u16(const std::uint8_t* p) { return p[0] << 8 | p[1]; }

Status parse_dqt(Segment s, JpegHeader& header) {
    while (s.size > 0) {
        const int precision = s.data[0] >> 4, id = s.data[0] & 15;
        const std::size_t bytes = precision ? 128 : 64;
        if (precision > 1 || id > 3 || s.size < 1 + bytes) return Status::jpeg_header;
        for (int k = 0; k < 64; ++k) {
            const int value = precision ? u16(s.data + 1 + 2 * k) : s.data[1 + k];
            header.quant[id][kNatural[k]] = static_cast<std::uint16_t>(value);
        }
        header.has_quant[id] = true;
        s.data += 1 + bytes;
        s.size -= 1 + bytes;
    }
    return Status::ok;
}

Status parse_dht(Segment s, JpegHeader& header) {
    while (s.size > 0) {
        if (s.size < 17) return Status::jpeg_header;
        const int table_class = s.data[0] >> 4, id = s.data[0] & 15;
        if (table_class > 1 || id > 3) return Status::jpeg_header;
        int total = 0;
        for (int i = 1; i <= 16; ++i) total += s.data[i];
        if (total > 256 || s.size < 17 + static_cast<std::size_t>(total))
            return Status::jpeg_header;
        HuffmanSpec& spec = table_class ? header.ac[id] : header.dc[id];
        spec = {s.data + 1, s.data + 17, total};
        s.data += 17 + total;
        s.size -= 17 + total;
    }
    return Status::ok;
}

Status parse_sof(Segment s, Frame& frame) {
    if (frame.component_count) return Status::jpeg_header;  // a second frame
    if (s.size < 6) return Status::jpeg_header;
    const int precision = s.data[0];
    frame.height = u16(s.data + 1);
    frame.width = u16(s.data + 3);
    const int count = s.data[5];
    if (s.size != 6 + 3 * static_cast<std::size_t>(count)) return Status::jpeg_header;
    if (precision != 8 || (count != 1 && count != 3)) return Status::unsupported;
    if (frame.width == 0 || frame.height == 0) return Status::unsupported;  // DNL files among them
    frame.component_count = count;
    for (int c = 0; c < count; ++c) {
        const std::uint8_t* p = s.data + 6 + 3 * c;
        Component& component = frame.components[c];
        component.id = p[0];
        component.h = p[1] >> 4;
        component.v = p[1] & 15;
        component.quant = p[2];
        if (component.quant > 3) return Status::jpeg_header;
    }
    return complete_frame(frame) ? Status::ok : Status::unsupported;
}

Status parse_sos(Segment s, JpegHeader& header) {
    Frame& frame = header.frame;
    if (!frame.component_count || s.size < 1) return Status::jpeg_header;
    const int count = s.data[0];
    if (s.size != 4 + 2 * static_cast<std::size_t>(count)) return Status::jpeg_header;
    if (count != frame.component_count) return Status::unsupported;
    for (int c = 0; c < count; ++c) {
        Component& component = frame.components[c];
        if (s.data[1 + 2 * c] != component.id) return Status::unsupported;
        component.dc = s.data[2 + 2 * c] >> 4;
        component.ac = s.data[2 + 2 * c] & 15;
        if (component.dc > 3 || component.ac > 3) return Status::jpeg_header;
        if (!header.dc[component.dc].counts || !header.ac[component.ac].counts) {
            return Status::unsupported;  // abbreviated streams leave the tables elsewhere
        }
        if (!header.has_quant[component.quant]) return Status::jpeg_header;
    }
    const std::uint8_t* tail = s.data + 1 + 2 * count;
    if (tail[0] != 0 || tail[1] != 63 || tail[2] != 0) return Status::unsupported;
    return Status::ok;
}

// libjpeg's own rules for what three components mean.
Colour guess_colour(const Frame& frame, bool jfif, int adobe_transform) {
    if (frame.component_count == 1) return Colour::gray;
    if (jfif) return Colour::ycc;
    if (adobe_transform >= 0) return adobe_transform == 0 ? Colour::rgb : Colour::ycc;
    const auto& c = frame.components;
    return c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B' ? Colour::rgb : Colour::ycc;
}

}  // namespace

bool complete_frame(Frame& frame) {
    if (frame.width < 1 || frame.height < 1 || frame.width > kMaxDimension ||
        frame.height > kMaxDimension || std::int64_t{frame.width} * frame.height > kMaxPixels) {
        return false;
    }
    // A lone component's blocks are coded one by one, whatever its factors say.
    if (frame.component_count == 1) frame.components[0].h = frame.components[0].v = 1;
    frame.h_max = frame.v_max = 1;
    for (int c = 0; c < frame.component_count; ++c) {
        frame.h_max = std::max(frame.h_max, frame.components[c].h);
        frame.v_max = std::max(frame.v_max, frame.components[c].v);
    }
    frame.blocks_per_mcu = 0;
    for (int c = 0; c < frame.component_count; ++c) {
        const Component& component = frame.components[c];
        const auto usable = [](int factor, int largest) {
            return (factor == 1 || factor == 2 || factor == 4) && largest % factor == 0;
        };
        if (!usable(component.h, frame.h_max) || !usable(component.v, frame.v_max)) return false;
        frame.blocks_per_mcu += component.h * component.v;
    }
    if (frame.blocks_per_mcu > 10) return false;  // T.81's limit
    frame.mcus_per_row = Frame::ceil_div(frame.width, frame.mcu_width());
    frame.mcu_rows = Frame::ceil_div(frame.height, frame.mcu_height());
    return true;
}

bool find_jpeg_size(const std::uint8_t* data, std::size_t size, PictureSize& picture) {
    if (size < 4 || data[0] != 0xFF || data[1] != SOI) return false;
    for (std::size_t pos = 2; pos + 4 <= size;) {
        const int marker = data[pos + 1];
        if (data[pos] != 0xFF) return false;
        if (marker == 0xFF) {  // fill byte
            ++pos;
            continue;
        }
        if (marker < SOF0 || (marker >= RST0 && marker <= SOS)) return false;
        const std::size_t length = u16(data + pos + 2);
        if (length < 2 || length > size - pos - 2) return false;
        // All SOFs; DHT, JPG and DAC stand between them.
        if (marker <= 0xCF && marker != DHT && marker != 0xC8 && marker != 0xCC) {
            if (length < 8) return false;
            picture = {u16(data + pos + 7), u16(data + pos + 5)};
            return picture.width > 0 && picture.height > 0;
        }
        pos += 2 + length;
    }
    return false;
}

Status parse_jpeg_header(const std::uint8_t* data, std::size_t size, JpegHeader& header) {
    header = JpegHeader{};
    if (size < 4 || data[0] != 0xFF || data[1] != SOI || data[2] != 0xFF)
        return Status::unsupported;
    bool jfif = false;
    int adobe_transform = -1;
    std::size_t pos = 2;
    for (;;) {
        if (pos + 2 > size) return Status::jpeg_truncated;
        if (data[pos] != 0xFF)
            return Status::unsupported;  // stray bytes: libjpeg knows how to skip them
        if (data[pos + 1] == 0xFF) {     // fill byte
            ++pos;
            continue;
        }
        const int marker = data[pos + 1];
        if (marker < SOF0 || (marker >= RST0 && marker <= EOI)) return Status::unsupported;
        if (pos + 4 > size) return Status::jpeg_truncated;
        const std::size_t length = u16(data + pos + 2);
        if (length < 2) return Status::jpeg_header;
        if (pos + 2 + length > size) return Status::jpeg_truncated;
        const Segment segment{data + pos + 4, length - 2};
        pos += 2 + length;
        Status status = Status::ok;
        switch (marker) {
            case DQT: status = parse_dqt(segment, header); break;
            case DHT: status = parse_dht(segment, header); break;
            case SOF0:
            case SOF1: status = parse_sof(segment, header.frame); break;
            case DRI:
                if (segment.size != 2) return Status::jpeg_header;
                header.restart_interval = u16(segment.data);
                break;
            case SOS:
                status = parse_sos(segment, header);
                if (status != Status::ok) return status;
                header.colour = guess_colour(header.frame, jfif, adobe_transform);
                header.size = pos;
                return Status::ok;
            case APP0: jfif |= segment.size >= 14 && !std::memcmp(segment.data, "JFIF", 5); break;
            case APP14:
                if (segment.size >= 12 && !std::memcmp(segment.data, "Adobe", 5)) {
                    adobe_transform = segment.data[11];
                }
                break;
            default:
                if (!(marker > APP0 && marker <= APP15) && marker != COM)
                    return Status::unsupported;
        }
        if (status != Status::ok) return status;
    }
}

}  // namespace slip
