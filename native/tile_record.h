// The tile record of FORMAT.md section 5: writing it from coefficients, and finding the way around
// in one.
#pragma once

#include "coefficients.h"
#include "jpeg_header.h"
#include "status.h"

namespace slip {

constexpr int kMaxTileMcus = 64;
constexpr std::size_t kTileRecordFixedBytes = 24;
constexpr int kLengthPadding =
    2;  // zero bytes behind the packed lengths, so that reading one never leaves the record
inline constexpr char kTileRecordMagic[] = "TJP1";

struct TileRecord {
    JpegHeader header;
    int tile_mcus = 0;
    int tiles_per_row = 0;
    const std::uint8_t* lengths = nullptr;  // packed: length_bits each, what is over shortest
    int length_bits = 0;
    std::size_t shortest = 0;
    const std::uint8_t* segments = nullptr;
    const std::uint8_t* end = nullptr;  // of the whole record: bytes that may be read
    const std::uint8_t* markers = nullptr;
    std::size_t marker_bytes = 0;

    std::size_t segment_length(std::size_t index) const {
        const std::size_t bit = index * length_bits;
        const std::uint8_t* p = lengths + (bit >> 3);
        const std::uint32_t word = p[0] | p[1] << 8 | p[2] << 16;
        return shortest + (word >> (bit & 7) & ((1u << length_bits) - 1));
    }
    // MCUs of the tiles in column `tile`.
    int mcus_in_tile(int tile) const {
        const int left = header.frame.mcus_per_row - tile * tile_mcus;
        return left < tile_mcus ? left : tile_mcus;
    }
};

// Points into `data`. Everything that later code relies on is checked here: header, table
// references, segment count and lengths.
Status parse_tile_record(const std::uint8_t* data, std::size_t size, TileRecord& record);

// `unsupported` if a coefficient is beyond what 8-bit JPEG can hold.
Status encode_tile_record(const Coefficients& coefficients, Bytes& record);

// All coefficients of a record.
Status decode_tile_record(const TileRecord& record, Coefficients& out);

}  // namespace slip
