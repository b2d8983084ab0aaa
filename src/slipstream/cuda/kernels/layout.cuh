// A slot: the compressed slices of a batch of crops and all that is needed to make pixels of them. The host
// writes it, the kernels read it. Offsets named `…_at` count bytes from the slot's start.
#pragma once

#include "common.cuh"

namespace slip::cuda {

constexpr int kComponents = 3;
constexpr int kMcuBlocks = 10;       // at most, in an MCU
constexpr int kSegmentGroup = 64;    // segments that a group of threads decodes
constexpr int kPixelThreads = 256;   // threads of a group that makes pixels
constexpr int kRowPixels = 4096;     // pixels of whole rows that a group keeps at hand …
constexpr int kPixelGroup = 1024;    // … or results it makes, where a row is longer
constexpr int kReadable = 8;         // bytes behind the data that may be read

struct Head {
    u32 pictures, width, height;  // width and height: of every result
    u32 pictures_at, segments_at, codes_at;
    // Numbers of the first group of each picture, and of the end, for each kernel.
    u32 segment_groups_at, pixel_groups_at;
    u32 bytes;
};

// A Huffman code as JPEG headers define it. The host has made sure that it is one.
struct Code {
    u8 counts[16];
    u8 symbols[256];
};

// One tile's entropy-coded MCUs. `at` is any byte of the slot.
struct Segment {
    u32 at, bytes;
};

enum Colour : u32 { kGray = 0, kYcc = 1, kRgb = 2 };

struct Component {
    u32 plane;              // where its decoded samples start, from the picture's planes on
    i32 stride;             // bytes from one row of them to the next
    i32 left, top;          // of the decoded part, in samples of the whole plane
    i32 width, height;      // of the whole plane
    i32 h_ratio, v_ratio;   // pixels per sample
    u16 across, down;       // its blocks in an MCU
    u16 dc, ac;             // its codes, counted from the picture's first
    u32 quant[32];          // in natural order, two in a word
};

struct Picture {
    Component components[kComponents];
    u64 planes;       // offset of its planes in theirs
    u64 middle;       // number of the first pixel of its first pass
    u32 first_segment, segments;
    u32 first_code, dc_codes, codes;  // those of DC coefficients come first
    u32 component_count, colour;
    u32 pairs;  // whether pixels can be made two at a time: see pixels.cuh
    // The decoded region: rows of MCUs, cut into tiles; the last of a row may be shorter.
    u32 mcus_across, mcu_rows, tile_mcus, tiles_across, blocks_per_mcu;
    // Of each block of an MCU: its component, and its place among that component's blocks there.
    u8 block_component[kMcuBlocks], block_column[kMcuBlocks], block_row[kMcuBlocks];
    i32 x, y;                            // of the crop's needed part
    u32 input_width;                     // of that part
    u32 middle_width, middle_height;     // size of the first pass's result
    u32 rows_per_group;                  // rows that a group makes of it; 0: kPixelGroup pixels
    u32 across_at, down_at;              // axes: see Axis
    u32 mirror, upside_down, down_first;
    u32 place;  // in the batch
};

// One direction of a resize: `taps` and `outputs`, then the first input of each output, then the weights, those of
// all outputs for the first tap, for the second, and so on. Inputs are counted from the crop's needed part on.
// Every input that is named exists; where an output has fewer taps the others' weights are zero.
struct Axis {
    i32 taps, outputs;
    const i32* first;
    const i32* weights;
};

SLIP_BOTH Axis axis_at(const u8* slot, u32 at) {
    const i32* words = reinterpret_cast<const i32*>(slot + at);
    return {words[0], words[1], words + 2, words + 2 + words[1]};
}

template <class T>
SLIP_BOTH const T* part(const u8* slot, u32 at) {
    return reinterpret_cast<const T*>(slot + at);
}

SLIP_BOTH const Head& head_of(const u8* slot) { return *part<Head>(slot, 0); }

// What became of a picture: kFine, or the number of its first bad segment and what is wrong with it.
constexpr u32 kFine = 0xFFFFFFFF;
constexpr u32 kBadCode = 0, kOverrun = 1, kLeftover = 2;

SLIP_BOTH u32 verdict(u32 segment, u32 reason) { return segment << 2 | reason; }

}  // namespace slip::cuda
