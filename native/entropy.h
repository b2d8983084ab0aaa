// Huffman decoding of MCUs from segments without byte stuffing. The hot loop of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "huffman.h"
#include "jpeg_header.h"

#define SLIP_INLINE inline __attribute__((always_inline))

namespace slip {
namespace SLIP_ISA {

// Which tables the blocks of an MCU use, in the order in which they are coded.
struct BlockPlan {
    const DecodeTable* dc;
    const DecodeTable* ac;
    int component;
};

struct McuPlan {
    BlockPlan blocks[10];
    int block_count;
};

// Builds the tables that the components name, each once, into `dc` and `ac` (four of each).
inline Status plan_mcu(const JpegHeader& header, DecodeTable* dc, DecodeTable* ac, McuPlan& plan) {
    bool dc_done[4] = {}, ac_done[4] = {};
    plan.block_count = 0;
    for (int c = 0; c < header.frame.component_count; ++c) {
        const Component& component = header.frame.components[c];
        Status status = Status::ok;
        if (!dc_done[component.dc])
            status = build_decode_table(header.dc[component.dc], true, dc[component.dc]);
        if (status == Status::ok && !ac_done[component.ac]) {
            status = build_decode_table(header.ac[component.ac], false, ac[component.ac]);
        }
        if (status != Status::ok) return status;
        dc_done[component.dc] = ac_done[component.ac] = true;
        for (int b = 0; b < component.h * component.v; ++b) {
            plan.blocks[plan.block_count++] = {&dc[component.dc], &ac[component.ac], c};
        }
    }
    return Status::ok;
}

// A position in a segment. `bits` holds the next `count` bits, first bit on top; what lies below
// them is either the bits that follow or zero. Reads never go beyond `limit`; past it the stream
// continues with zeros, which check_end finds out.
struct Stream {
    const std::uint8_t* data;
    std::size_t limit;
    std::size_t position;
    std::uint64_t bits;
    int count;
    std::uint32_t predictor[kMaxComponents];  // unsigned: damaged data may wrap
    bool bad;

    void start(const std::uint8_t* segment, std::size_t readable) {
        data = segment;
        limit = readable;
        position = 0;
        bits = 0;
        count = 0;
        std::memset(predictor, 0, sizeof predictor);
        bad = false;
    }
};

SLIP_INLINE std::uint64_t load_big_endian(const std::uint8_t* p) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    return __builtin_bswap64(word);
}

// Leaves at least 56 bits.
SLIP_INLINE void refill(Stream& s) {
    if (s.position + 8 <= s.limit) [[likely]] {
        s.bits |= load_big_endian(s.data + s.position) >> s.count;
    } else {
        std::uint64_t word = 0;
        for (int i = 0; i < 8; ++i) {
            const std::uint8_t byte = s.position + i < s.limit ? s.data[s.position + i] : 0;
            word = word << 8 | byte;
        }
        s.bits |= word >> s.count;
    }
    s.position += static_cast<std::size_t>(63 - s.count) >> 3;
    s.count |= 56;
}

SLIP_INLINE void consume(Stream& s, int bits) {
    s.bits <<= bits;
    s.count -= bits;
}

// A symbol whose code or magnitude does not fit the lookup. At most 31 bits.
inline __attribute__((noinline)) std::uint64_t slow_symbol(std::uint64_t bits,
                                                           const DecodeTable& table,
                                                           std::uint32_t entry, bool is_dc) {
    int length = static_cast<int>(entry >> 8 & 0xFF);
    int symbol = static_cast<int>(entry >> 16 & 0xFF);
    if (length == 0) {
        const int top = static_cast<int>(bits >> 48);
        length = kLookBits + 1;
        while (length <= 16 && top >> (16 - length) > table.max_code[length]) ++length;
        if (length > 16) return ~std::uint64_t{0};
        symbol = table.symbols[((top >> (16 - length)) + table.first_symbol[length]) & 0xFF];
    }
    const int size = symbol & 15, run = is_dc ? 0 : symbol >> 4;
    int value = 0;
    if (size) {
        value = static_cast<int>(bits << length >> (64 - size));
        if (value < 1 << (size - 1)) value -= (1 << size) - 1;
    }
    int advance = is_dc ? 0 : run + 1;
    if (!is_dc && size == 0) advance = run == 15 ? 16 : kEndOfBlock;
    return static_cast<std::uint64_t>(length + size) | static_cast<std::uint64_t>(advance) << 8 |
           static_cast<std::uint64_t>(static_cast<std::uint16_t>(value)) << 16;
}

// Bits 0-7 consumed, 8-15 advance, 16-31 value.
template <bool is_dc>
SLIP_INLINE std::uint32_t symbol(Stream& s, const DecodeTable& table) {
    std::uint32_t entry = table.look[s.bits >> (64 - kLookBits)];
    if ((entry & 0xFF) == 0) [[unlikely]] {
        const std::uint64_t slow = slow_symbol(s.bits, table, entry, is_dc);
        if (slow == ~std::uint64_t{0}) {
            s.bad = true;
            entry = 1 | kEndOfBlock << 8;
        } else {
            entry = static_cast<std::uint32_t>(slow);
        }
    }
    consume(s, entry & 0xFF);
    return entry;
}

// Decodes the DC coefficient. `block` is zero before.
SLIP_INLINE void begin_block(Stream& s, const BlockPlan& plan, std::int16_t* block) {
    refill(s);
    const std::uint32_t entry = symbol<true>(s, *plan.dc);
    s.predictor[plan.component] +=
        static_cast<std::uint32_t>(static_cast<std::int16_t>(entry >> 16));
    block[0] = static_cast<std::int16_t>(s.predictor[plan.component]);
}

// Decodes one AC symbol and returns the new position; the block is complete at 63 and beyond.
SLIP_INLINE int next_coefficient(Stream& s, const DecodeTable& table, std::int16_t* block, int k) {
    refill(s);
    const std::uint32_t entry = symbol<false>(s, table);
    k += static_cast<int>(entry >> 8 & 0xFF);
    block[kNatural[k]] = static_cast<std::int16_t>(entry >> 16);
    return k;
}

// A run that ends between 64 and kEndOfBlock left the block.
SLIP_INLINE bool overran(int k) { return k != 63 && k < kEndOfBlock; }

// Where the last coefficient before the end of the block stands; 0: there is only DC.
SLIP_INLINE std::uint8_t last_position(int k) {
    return static_cast<std::uint8_t>(k & (kEndOfBlock - 1));
}

// Blocks in the order of the stream, 64 coefficients each in natural order, already zeroed.
// `last` gets the last position of each.
inline void decode_mcus(Stream& stream, const McuPlan& plan, int mcus, std::int16_t* block,
                        std::uint8_t* last) {
    Stream s = stream;
    for (int m = 0; m < mcus; ++m) {
        for (int b = 0; b < plan.block_count; ++b, block += 64) {
            begin_block(s, plan.blocks[b], block);
            const DecodeTable& ac = *plan.blocks[b].ac;
            int k = 0;
            do k = next_coefficient(s, ac, block, k);
            while (k < 63);
            s.bad |= overran(k);
            *last++ = last_position(k);
        }
    }
    stream = s;
}

// The same for two segments at once: a symbol of one, a symbol of the other. Each waits for its own
// table lookups, so the processor works on one while the other waits.
inline void decode_mcus_pair(Stream& stream_a, Stream& stream_b, const McuPlan& plan, int mcus,
                             std::int16_t* block_a, std::int16_t* block_b, std::uint8_t* last_a,
                             std::uint8_t* last_b) {
    Stream a = stream_a, b = stream_b;
    const int total = mcus * plan.block_count;
    int left_a = total, left_b = total;
    const BlockPlan* const first = plan.blocks;
    const BlockPlan* const end = plan.blocks + plan.block_count;
    const BlockPlan *plan_a = first, *plan_b = first;
    const DecodeTable *ac_a = plan_a->ac, *ac_b = plan_b->ac;
    begin_block(a, *plan_a, block_a);
    begin_block(b, *plan_b, block_b);
    int k_a = 0, k_b = 0;
    for (;;) {
        k_a = next_coefficient(a, *ac_a, block_a, k_a);
        k_b = next_coefficient(b, *ac_b, block_b, k_b);
        if (k_a >= 63) {
            a.bad |= overran(k_a);
            *last_a++ = last_position(k_a);
            if (--left_a == 0) break;
            if (++plan_a == end) plan_a = first;
            block_a += 64;
            begin_block(a, *plan_a, block_a);
            ac_a = plan_a->ac;
            k_a = 0;
        }
        if (k_b >= 63) {
            b.bad |= overran(k_b);
            *last_b++ = last_position(k_b);
            if (--left_b == 0) break;
            if (++plan_b == end) plan_b = first;
            block_b += 64;
            begin_block(b, *plan_b, block_b);
            ac_b = plan_b->ac;
            k_b = 0;
        }
    }
    const auto finish = [&](Stream& s, const BlockPlan* p, std::int16_t* block, int k, int left,
                            std::uint8_t* last) {
        for (;;) {
            while (k < 63) k = next_coefficient(s, *p->ac, block, k);
            s.bad |= overran(k);
            *last++ = last_position(k);
            if (--left == 0) return;
            if (++p == end) p = first;
            block += 64;
            begin_block(s, *p, block);
            k = 0;
        }
    };
    if (left_a > 0) {
        finish(a, plan_a, block_a, k_a, left_a, last_a);
    } else if (left_b > 0) {
        finish(b, plan_b, block_b, k_b, left_b, last_b);
    }
    stream_a = a;
    stream_b = b;
}

// After the last MCU of a segment of `size` bytes: less than a byte must be left, all ones.
inline Status check_end(const Stream& s, std::size_t size) {
    if (s.bad) return Status::huffman_code;
    const auto used = static_cast<std::int64_t>(s.position) * 8 - s.count;
    const std::int64_t left = static_cast<std::int64_t>(size) * 8 - used;
    if (left < 0) return Status::segment_overrun;
    if (left > 7) return Status::segment_leftover;
    if (left > 0 && s.bits >> (64 - left) != (std::uint64_t{1} << left) - 1)
        return Status::segment_leftover;
    return Status::ok;
}

}  // namespace SLIP_ISA
}  // namespace slip
