// Decoding of one segment, from bits to samples: what one thread does.
#pragma once

#include "idct.cuh"
#include "layout.cuh"

namespace slip::cuda {

constexpr int kLookBits = 10;
constexpr int kLookups = 1 << kLookBits;
constexpr int kMostCodes = 2 * kComponents;

// Lookups answer most symbols: bits of code and magnitude together in bits 0-4, of the magnitude in 5-8, how far to go on
// in the block from bit 9 on. 0: the code is longer than a lookup.
struct Table {
    u16 look[kLookups];
    // Of the codes of each length: the largest, left-aligned in 16 bits, plus one; and the number of its symbol
    // minus the code. Lengths without codes have 0.
    u32 end[17];
    i32 first_symbol[17];
};

// The first half of building a table. The second, below, is for `lane` of `lanes` threads together.
SLIP_BOTH void build_lengths(const Code& code, Table& table) {
    u32 next = 0, index = 0;
    for (u32 length = 1; length <= 16; ++length) {
        const u32 count = code.counts[length - 1];
        table.first_symbol[length] = static_cast<i32>(index) - static_cast<i32>(next);
        next += count;
        index += count;
        table.end[length] = count ? next << (16 - length) : 0;
        next <<= 1;
    }
}

constexpr u32 kEndOfBlock = 64;  // goes beyond every block

SLIP_BOTH u32 entry_of(u32 symbol, u32 length, bool is_dc) {
    const u32 size = symbol & 15, run = symbol >> 4;
    const u32 advance = is_dc ? 0 : size == 0 && run != 15 ? kEndOfBlock : run + 1;
    return (length + size) | size << 5 | advance << 9;
}

// The code that `top`, the next 16 bits, begins with, if it is longer than `beyond` bits; 0 if none.
SLIP_BOTH u32 find_code(const Table& table, const u8* symbols, u32 top, u32 beyond, u32 most,
                        bool is_dc) {
    for (u32 length = beyond + 1; length <= most; ++length) {
        if (top < table.end[length]) {
            const i32 number = static_cast<i32>(top >> (16 - length)) + table.first_symbol[length];
            return entry_of(symbols[number & 255], length, is_dc);
        }
    }
    return 0;
}

SLIP_BOTH void build_lookups(const Code& code, Table& table, bool is_dc, u32 lane, u32 lanes) {
    for (u32 i = lane; i < kLookups; i += lanes) {
        table.look[i] = static_cast<u16>(
            find_code(table, code.symbols, i << (16 - kLookBits), 0, kLookBits, is_dc));
    }
}

SLIP_BOTH u32 from_big_endian(u32 word) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(word, 0, 0x0123);
#else
    return __builtin_bswap32(word);
#endif
}

// The upper 32 of 64 bits, behind the first `shift`, at most 31, of them.
SLIP_BOTH u32 shift_in(u32 upper, u32 lower, u32 shift) {
#if defined(__CUDA_ARCH__)
    return __funnelshift_l(lower, upper, shift);
#else
    return static_cast<u32>((static_cast<u64>(upper) << 32 | lower) << shift >> 32);
#endif
}

// A place in a segment: `used` bits of `current` are behind us, two words follow it. They are read before they are
// needed, as memory takes its time. Words are read whole, and only those that hold bytes of the segment; behind them the
// stream goes on with zeros, which the check at its end finds out.
struct Stream {
    const u32* words;
    u32 next, end;  // numbers of the word behind the two, and of the first behind the segment
    u32 current, second, third;
    u32 used;
};

SLIP_BOTH u32 next_word(Stream& s) {
    const u32 word = s.next < s.end ? from_big_endian(s.words[s.next]) : 0;
    ++s.next;
    return word;
}

SLIP_BOTH Stream start(const u8* slot, const Segment& segment) {
    Stream s{part<u32>(slot, 0), segment.at / 4, (segment.at + segment.bytes + 3) / 4, 0, 0, 0,
             8 * (segment.at & 3)};
    s.current = next_word(s);
    s.second = next_word(s);
    s.third = next_word(s);
    return s;
}

// At most 31 bits.
SLIP_BOTH void consume(Stream& s, u32 bits) {
    s.used += bits;
    if (s.used >= 32) {
        s.used -= 32;
        s.current = s.second;
        s.second = s.third;
        s.third = next_word(s);
    }
}

// The next symbol's entry; 0 if the bits are no code. Consumes code and magnitude.
SLIP_BOTH u32 next_symbol(Stream& s, const Table& table, const u8* symbols, bool is_dc, i32& value) {
    const u32 bits = shift_in(s.current, s.second, s.used);
    u32 entry = table.look[bits >> (32 - kLookBits)];
    if (entry == 0) entry = find_code(table, symbols, bits >> 16, kLookBits, 16, is_dc);
    const u32 total = entry & 31, size = entry >> 5 & 15;
    // Shifted in two steps, as there may be no magnitude.
    const i32 magnitude = static_cast<i32>(bits << (total - size) >> 1 >> (31 - size));
    const i32 least = (1 << size) >> 1;
    value = magnitude < least ? magnitude - (1 << size) + 1 : magnitude;
    consume(s, total);
    return entry;
}

// After the last block: less than a byte must be left, all ones.
SLIP_BOTH u32 check_end(const Stream& s, const Segment& segment) {
    // Three words were read beyond what is used.
    const i32 used = static_cast<i32>(32 * (s.next - 3 - segment.at / 4) + s.used - 8 * (segment.at & 3));
    const i32 left = static_cast<i32>(8 * segment.bytes) - used;
    if (left < 0) return kOverrun;
    if (left > 7) return kLeftover;
    const u32 ones = (1u << left) - 1;
    return shift_in(s.current, s.second, s.used) >> 24 >> (8 - left) == ones ? kFine : kLeftover;
}

// Positions of a block's coefficients in natural order, in the order in which they are coded.
#define SLIP_NATURAL_ORDER                                                                       \
    {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,     \
     41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,     \
     30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63}

// DC values of the components before the block at hand. Unsigned: damaged data may wrap. An array would not stay in
// registers.
struct Predictors {
    u32 first, second, third;

    SLIP_BOTH u32 advance(u32 component, i32 difference) {
        const u32 level = (component == 0 ? first : component == 1 ? second : third) + static_cast<u32>(difference);
        if (component == 0) first = level;
        if (component == 1) second = level;
        if (component == 2) third = level;
        return level;
    }
};

// The coefficients of one block into `block`, which is zero before. False if the bits are no codes, or too many.
SLIP_BOTH bool decode_block(Stream& s, const Table& dc, const u8* dc_symbols, const Table& ac,
                            const u8* ac_symbols, const u8* order, u32 component,
                            Predictors& predictors, i16* block) {
    i32 value = 0;
    if (next_symbol(s, dc, dc_symbols, true, value) == 0) return false;
    block[0] = static_cast<i16>(predictors.advance(component, value));
    u32 k = 0, advance;
    do {
        const u32 entry = next_symbol(s, ac, ac_symbols, false, value);
        advance = entry >> 9;
        if (entry == 0) return false;
        k += advance;
        if (k > 63) return advance == kEndOfBlock;
        block[order[k]] = static_cast<i16>(value);
    } while (k < 63);
    return true;
}

// A thread's block, a little apart from those of its neighbours: rows of all threads would lie in one bank of shared
// memory otherwise.
constexpr int kBlockWords = 33;

// Decodes segment `number` of a picture into its planes. `tables` are the picture's, `order` is the natural one, `words`
// are this thread's. Returns kFine or what is wrong; then its samples are anything, and nothing else was touched.
SLIP_BOTH u32 decode_segment(const u8* slot, const Picture& picture, u32 number, const Table* tables,
                             const u8* order, u32* words, u8* planes) {
    const Head& head = head_of(slot);
    const Segment segment = part<Segment>(slot, head.segments_at)[picture.first_segment + number];
    const Code* codes = part<Code>(slot, head.codes_at) + picture.first_code;
    const u32 row = number / picture.tiles_across, tile = number % picture.tiles_across;
    const u32 first_mcu = tile * picture.tile_mcus;
    const u32 left = picture.mcus_across - first_mcu;
    const u32 mcus = left < picture.tile_mcus ? left : picture.tile_mcus;
    i16* block = reinterpret_cast<i16*>(words);
    Stream s = start(slot, segment);
    Predictors predictors{0, 0, 0};
    for (int i = 0; i < 32; ++i) words[i] = 0;
    for (u32 m = 0; m < mcus; ++m) {
        for (u32 b = 0; b < picture.blocks_per_mcu; ++b) {
            const u32 c = picture.block_component[b];
            const Component& component = picture.components[c];
            if (!decode_block(s, tables[component.dc], codes[component.dc].symbols, tables[component.ac],
                              codes[component.ac].symbols, order, c, predictors, block)) {
                return kBadCode;
            }
            const u32 x = 8 * ((first_mcu + m) * component.across + picture.block_column[b]);
            const u32 y = 8 * (row * component.down + picture.block_row[b]);
            idct_block(words, component.quant,
                       planes + picture.planes + component.plane + static_cast<u64>(y) * component.stride + x,
                       component.stride);
        }
    }
    return check_end(s, segment);
}

}  // namespace slip::cuda
