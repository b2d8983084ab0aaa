// Huffman codes of baseline JPEG: tables to decode with, and the best codes for given symbol
// counts.
#pragma once

#include <array>
#include <cstdint>

#include "jpeg_header.h"
#include "status.h"

namespace slip {

// One lookup of kLookBits bits answers most symbols completely: how many bits code and magnitude
// take together, how far to move in the block, and the coefficient itself.
constexpr int kLookBits = 11;
constexpr int kEndOfBlock = 128;  // an advance that no run of coefficients reaches

struct DecodeTable {
    // Bits 0-7: bits to consume, or 0: the symbol needs the slow way. Bits 8-15: advance. Bits
    // 16-31: value. Slow entries: bits 8-15 code length or 0 if longer than kLookBits, bits 16-23
    // symbol.
    std::array<std::uint32_t, 1 << kLookBits> look;
    std::array<std::int32_t, 18>
        max_code;  // largest code of each length, -1 if none; [17] ends the search
    std::array<std::int32_t, 17> first_symbol;  // symbols[code + first_symbol[length]]
    std::array<std::uint8_t, 256> symbols;
};

// Whether this is a prefix code, with symbols that a DC table may have if it is one.
Status check_code(const HuffmanSpec& spec, bool is_dc);

// `symbols` of DC tables are magnitude sizes; of AC tables run and size. Checks the code.
Status build_decode_table(const HuffmanSpec& spec, bool is_dc, DecodeTable& table);

struct EncodeTable {
    std::array<std::uint8_t, 17> counts;  // [1..16]
    std::array<std::uint8_t, 256> symbols;
    int symbol_count;
    std::array<std::uint16_t, 256> code;
    std::array<std::uint8_t, 256> length;  // 0: symbol has no code
};

// The shortest prefix code for these frequencies with codes of at most 16 bits and none of all
// 1-bits.
void build_encode_table(const std::array<std::uint32_t, 256>& frequencies, EncodeTable& table);

}  // namespace slip
