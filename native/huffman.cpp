#include "huffman.h"

#include <algorithm>
#include <cstring>

namespace slip {
namespace {

int extend(int bits, int size) {
    return size && bits < (1 << (size - 1)) ? bits - (1 << size) + 1 : bits;
}

int advance_of(int symbol, bool is_dc) {
    if (is_dc) return 0;
    const int run = symbol >> 4, size = symbol & 15;
    if (size) return run + 1;
    return run == 15 ? 16 : kEndOfBlock;
}

void fill_look(DecodeTable& table, int code, int length, int symbol, bool is_dc) {
    const int size = is_dc ? symbol : symbol & 15;
    const int rest = kLookBits - length;
    std::uint32_t* entry = table.look.data() + (static_cast<std::size_t>(code) << rest);
    const int variants = 1 << rest;
    if (size > rest) {
        const auto slow = static_cast<std::uint32_t>(length << 8 | symbol << 16);
        std::fill_n(entry, variants, slow);
        return;
    }
    const int advance = advance_of(symbol, is_dc);
    const int repeats = 1 << (rest - size);
    for (int bits = 0; bits < 1 << size; ++bits, entry += repeats) {
        const auto value = static_cast<std::uint16_t>(extend(bits, size));
        const auto fast = static_cast<std::uint32_t>((length + size) | advance << 8 | value << 16);
        std::fill_n(entry, repeats, fast);
    }
}

}  // namespace

Status check_code(const HuffmanSpec& spec, bool is_dc) {
    int code = 0, index = 0;
    for (int length = 1; length <= 16; ++length, code <<= 1) {
        const int count = spec.counts[length - 1];
        if (code + count > 1 << length) return Status::huffman_table;
        code += count;
        index += count;
    }
    const auto is_size = [](std::uint8_t symbol) { return symbol <= 15; };
    return !is_dc || std::all_of(spec.symbols, spec.symbols + index, is_size)
               ? Status::ok
               : Status::huffman_table;
}

Status build_decode_table(const HuffmanSpec& spec, bool is_dc, DecodeTable& table) {
    const Status status = check_code(spec, is_dc);
    if (status != Status::ok) return status;
    table.look.fill(0);
    table.max_code.fill(-1);
    table.first_symbol.fill(0);
    table.symbols.fill(0);
    std::memcpy(table.symbols.data(), spec.symbols, spec.symbol_count);
    int code = 0, index = 0;
    for (int length = 1; length <= 16; ++length, code <<= 1) {
        const int count = spec.counts[length - 1];
        if (count == 0) continue;
        table.first_symbol[length] = index - code;
        for (int i = 0; i < count; ++i, ++code, ++index) {
            const int symbol = table.symbols[index];
            if (length <= kLookBits) fill_look(table, code, length, symbol, is_dc);
        }
        table.max_code[length] = code - 1;
    }
    table.max_code[17] = 0x7FFFFFFF;
    return Status::ok;
}

namespace {

constexpr int kReserved = 256;  // a 257th symbol takes the all-ones code that JPEG forbids
constexpr int kSymbols = 257;

// Code lengths of a Huffman tree over the used symbols. Ties go to the larger symbol, so that equal
// input gives equal codes.
std::array<int, kSymbols> tree_lengths(const std::array<std::uint32_t, 256>& frequencies) {
    struct Node {
        std::uint64_t weight;
        int symbol;  // largest symbol below: the tie-break
        int next;    // linked list of leaves
        int last;
    };
    std::array<Node, kSymbols> nodes;
    std::array<int, kSymbols> length{}, next;
    next.fill(-1);
    int count = 0;
    for (int s = 0; s < 256; ++s) {
        if (frequencies[s]) nodes[count++] = {frequencies[s], s, s, s};
    }
    nodes[count++] = {0, kReserved, kReserved, kReserved};
    const auto heavier = [](const Node& a, const Node& b) {
        return a.weight != b.weight ? a.weight > b.weight : a.symbol < b.symbol;
    };
    std::make_heap(nodes.begin(), nodes.begin() + count, heavier);
    while (count > 1) {
        std::pop_heap(nodes.begin(), nodes.begin() + count, heavier);
        const Node a = nodes[--count];
        std::pop_heap(nodes.begin(), nodes.begin() + count, heavier);
        Node& b = nodes[count - 1];
        next[b.last] = a.next;
        b = {a.weight + b.weight, std::max(a.symbol, b.symbol), b.next, a.last};
        for (int s = b.next; s >= 0; s = next[s]) ++length[s];
        std::push_heap(nodes.begin(), nodes.begin() + count, heavier);
    }
    return length;
}

// T.81 K.2: moves codes longer than 16 bits up, two at a time.
void limit_lengths(std::array<int, kSymbols + 1>& counts) {
    for (int i = kSymbols; i > 16; --i) {
        while (counts[i] > 0) {
            int j = i - 2;
            while (counts[j] == 0) --j;
            counts[i] -= 2;
            counts[i - 1] += 1;
            counts[j + 1] += 2;
            counts[j] -= 1;
        }
    }
}

}  // namespace

void build_encode_table(const std::array<std::uint32_t, 256>& frequencies, EncodeTable& table) {
    table = EncodeTable{};
    const auto length = tree_lengths(frequencies);
    std::array<int, kSymbols + 1> counts{};
    for (int s = 0; s < kSymbols; ++s) ++counts[length[s]];
    counts[0] = 0;
    limit_lengths(counts);
    int longest = 16;
    while (longest > 0 && counts[longest] == 0) --longest;
    if (longest > 0) --counts[longest];  // the reserved code

    std::array<int, 256> order;
    for (int s = 0; s < 256; ++s) order[s] = s;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        return (length[a] ? length[a] : 999) < (length[b] ? length[b] : 999);
    });
    int code = 0, index = 0;
    for (int bits = 1; bits <= 16; ++bits, code <<= 1) {
        table.counts[bits] = static_cast<std::uint8_t>(counts[bits]);
        for (int i = 0; i < counts[bits]; ++i, ++code, ++index) {
            const int symbol = order[index];
            table.symbols[index] = static_cast<std::uint8_t>(symbol);
            table.code[symbol] = static_cast<std::uint16_t>(code);
            table.length[symbol] = static_cast<std::uint8_t>(bits);
        }
    }
    table.symbol_count = index;
}

}  // namespace slip
