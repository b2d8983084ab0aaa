// A thread's memory for decoding, kept from picture to picture.
#pragma once

#include "buffer.h"
#include "huffman.h"
#include "jpeg_header.h"
#include "resize_weights.h"
#include "tile_record.h"

namespace slip {

struct Scratch {
    TileRecord record;
    DecodeTable dc[4], ac[4];
    Buffer scan;       // a file's entropy-coded bytes without stuffing
    Buffer intervals;  // offsets of its restart intervals
    Buffer blocks;     // coefficients of a row of MCUs
    Buffer last;       // last position of each of these blocks
    Buffer planes[kMaxComponents];
    Buffer file;       // pixels of a file that libjpeg decoded
    Buffer upsampled;  // rows of components at full resolution
    Buffer sums;
    Buffer rows;      // rows of red, green and blue on their way to the resize
    Buffer narrowed;  // rows after the horizontal pass
    Axis horizontal, vertical;
    Buffer columns, lines;  // nearest neighbour positions
};

}  // namespace slip
