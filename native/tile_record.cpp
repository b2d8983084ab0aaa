#include "tile_record.h"

#include <cstring>

namespace slip {
namespace {

std::uint32_t u32(const std::uint8_t* p) {
    return p[0] | p[1] << 8 | p[2] << 16 | static_cast<std::uint32_t>(p[3]) << 24;
}

// A record's header holds the tables, the frame and the scan, and nothing that a decoder would have
// to skip.
bool only_needed_markers(const std::uint8_t* header, std::size_t size) {
    for (std::size_t pos = 2; pos + 4 <= size;) {
        const int marker = header[pos + 1];
        if (header[pos] != 0xFF) return false;
        if (marker != 0xDB && marker != 0xC0 && marker != 0xC1 && marker != 0xC4 &&
            marker != 0xDA) {
            return false;
        }
        pos += 2 + (header[pos + 2] << 8 | header[pos + 3]);
    }
    return true;
}

// APPn and COM segments, one after another, and nothing else: they go into exported files as they
// are.
bool are_markers(const std::uint8_t* data, std::size_t size) {
    while (size >= 4) {
        const std::size_t length = 2 + static_cast<std::size_t>(data[2] << 8 | data[3]);
        const bool kept = (data[1] >= 0xE0 && data[1] <= 0xEF) || data[1] == 0xFE;
        if (data[0] != 0xFF || !kept || length < 4 || length > size) return false;
        data += length;
        size -= length;
    }
    return size == 0;
}

}  // namespace

Status parse_tile_record(const std::uint8_t* data, std::size_t size, TileRecord& record) {
    if (size < kTileRecordFixedBytes) return Status::record_size;
    if (std::memcmp(data, kTileRecordMagic, 4) != 0) return Status::record_magic;
    const std::uint64_t header_bytes = u32(data + 4), marker_bytes = u32(data + 8);
    const std::uint64_t segment_count = u32(data + 12);
    record.tile_mcus = data[16] | data[17] << 8;
    const int colour = data[18];
    record.length_bits = data[19];
    record.shortest = data[20] | data[21] << 8;
    if (record.length_bits > 16) return Status::record_segments;
    const std::uint64_t before = kTileRecordFixedBytes + header_bytes +
                                 (segment_count * record.length_bits + 7) / 8 + kLengthPadding;
    // A segment has a byte at least: segment_length may read the one behind the padding.
    if (before + marker_bytes >= size) return Status::record_size;

    const std::uint8_t* header = data + kTileRecordFixedBytes;
    const Status status = parse_jpeg_header(header, header_bytes, record.header);
    if (status == Status::huffman_table) return status;
    const Frame& frame = record.header.frame;
    if (status != Status::ok || record.header.size != header_bytes ||
        !only_needed_markers(header, header_bytes) || data[22] != 0 || data[23] != 0 ||
        data[before - 1] != 0 || data[before - 2] != 0 || colour > 2 ||
        (colour == 0) != (frame.component_count == 1)) {
        return Status::record_header;
    }
    record.header.colour = static_cast<Colour>(colour);

    if (record.tile_mcus < 1 || record.tile_mcus > kMaxTileMcus) return Status::record_segments;
    record.tiles_per_row = Frame::ceil_div(frame.mcus_per_row, record.tile_mcus);
    if (segment_count != std::uint64_t{1} * record.tiles_per_row * frame.mcu_rows) {
        return Status::record_segments;
    }
    record.lengths = header + header_bytes;
    record.segments = data + before;
    record.end = data + size;
    record.markers = data + size - marker_bytes;
    record.marker_bytes = marker_bytes;
    if (!are_markers(record.markers, marker_bytes)) return Status::record_header;
    std::uint64_t total = 0;
    bool too_short = record.shortest == 0;
    std::size_t index = 0;
    for (int row = 0; row < frame.mcu_rows; ++row) {
        for (int tile = 0; tile < record.tiles_per_row; ++tile, ++index) {
            const std::size_t length = record.segment_length(index);
            total += length;
            // A block takes two bits at least, so a small record cannot make us allocate much.
            too_short |= 4 * length <
                         static_cast<std::size_t>(record.mcus_in_tile(tile)) * frame.blocks_per_mcu;
        }
    }
    if (too_short || before + total + marker_bytes != size) return Status::record_segments;
    return Status::ok;
}

}  // namespace slip
