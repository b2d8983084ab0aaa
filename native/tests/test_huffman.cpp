// entropy.h is included as part of a namespace of its own: these tests decode with the real thing.
#define SLIP_ISA under_test

#include <algorithm>
#include <cmath>
#include <vector>

#include "check.h"
#include "entropy.h"
#include "huffman.h"
#include "random.h"

namespace {

using slip::Status;
using testing::Random;
using Frequencies = std::array<std::uint32_t, 256>;

slip::EncodeTable encode_table(const Frequencies& frequencies) {
    slip::EncodeTable table;
    slip::build_encode_table(frequencies, table);
    return table;
}

slip::HuffmanSpec spec_of(const slip::EncodeTable& table) {
    return {table.counts.data() + 1, table.symbols.data(), table.symbol_count};
}

double bits_spent(const Frequencies& frequencies, const slip::EncodeTable& table) {
    double bits = 0;
    for (int s = 0; s < 256; ++s) bits += double(frequencies[s]) * table.length[s];
    return bits;
}

double entropy_bits(const Frequencies& frequencies) {
    double total = 0, bits = 0;
    for (const auto f : frequencies) total += f;
    for (const auto f : frequencies) {
        if (f) bits -= f * std::log2(f / total);
    }
    return bits;
}

// Weighted length of an unlimited Huffman code that, like JPEG's, has a 257th symbol of weight
// zero.
double best_bits(const Frequencies& frequencies) {
    std::vector<double> heap{0.0};
    for (const auto f : frequencies) {
        if (f) heap.push_back(f);
    }
    double bits = 0;
    while (heap.size() > 1) {
        std::sort(heap.begin(), heap.end(), std::greater<>());
        const double sum = heap[heap.size() - 1] + heap[heap.size() - 2];
        heap.resize(heap.size() - 2);
        heap.push_back(sum);
        bits += sum;
    }
    return bits;
}

void check_code(const Frequencies& frequencies, const slip::EncodeTable& table) {
    int used = 0, counted = 0;
    for (int s = 0; s < 256; ++s) {
        CHECK((frequencies[s] != 0) == (table.length[s] != 0));
        used += frequencies[s] != 0;
        if (!table.length[s]) continue;
        const int length = table.length[s];
        CHECK(length <= 16);
        CHECK(table.code[s] < (1 << length) - 1);  // neither too long nor all ones
        for (int other = 0; other < s; ++other) {
            if (!table.length[other]) continue;
            const int shorter = std::min<int>(length, table.length[other]);
            CHECK(table.code[s] >> (length - shorter) !=
                  table.code[other] >> (table.length[other] - shorter));
        }
    }
    for (int bits = 1; bits <= 16; ++bits) counted += table.counts[bits];
    CHECK(table.symbol_count == used && counted == used);
    const auto heavier_is_not_longer = [&](int a, int b) {
        return frequencies[a] <= frequencies[b] || table.length[a] <= table.length[b];
    };
    for (int a = 0; a < 256; ++a) {
        for (int b = 0; b < 256; ++b) {
            if (table.length[a] && table.length[b]) CHECK(heavier_is_not_longer(a, b));
        }
    }
}

std::uint64_t first_bits(std::uint32_t code, int length) {
    return std::uint64_t{code} << (64 - length);
}

// Every code, followed by every kind of magnitude bits, comes back as the symbol it stands for.
void check_inverse(const slip::EncodeTable& table, bool is_dc) {
    slip::DecodeTable decode;
    CHECK(slip::build_decode_table(spec_of(table), is_dc, decode) == Status::ok);
    for (int s = 0; s < 256; ++s) {
        const int length = table.length[s];
        if (!length) continue;
        const int size = s & 15, run = s >> 4;
        for (const std::uint32_t extra : {0u, 1u, (1u << size) >> 1, (1u << size) - 1}) {
            const std::uint32_t magnitude = extra & ((1u << size) - 1);
            slip::under_test::Stream stream{};
            stream.count = 64;
            stream.bits = first_bits(table.code[s] << size | magnitude, length + size);
            const std::uint32_t entry = is_dc ? slip::under_test::symbol<true>(stream, decode)
                                              : slip::under_test::symbol<false>(stream, decode);
            const int low = size && !(magnitude >> (size - 1)) ? (1 << size) - 1 : 0;
            const int value = static_cast<int>(magnitude) - low;
            const int block_end = size == 0 ? (run == 15 ? 16 : slip::kEndOfBlock) : run + 1;
            CHECK(!stream.bad);
            CHECK(64 - stream.count == length + size);
            CHECK(static_cast<std::int16_t>(entry >> 16) == value);
            CHECK(static_cast<int>(entry >> 8 & 0xFF) == (is_dc ? 0 : block_end));
        }
    }
}

void check_all(const Frequencies& frequencies) {
    const slip::EncodeTable table = encode_table(frequencies);
    check_code(frequencies, table);
    check_inverse(table, false);
    const bool may_be_dc =
        std::all_of(frequencies.begin() + 16, frequencies.end(), [](auto f) { return f == 0; });
    if (may_be_dc) check_inverse(table, true);
}

void no_symbol() {
    const slip::EncodeTable table = encode_table({});
    CHECK(table.symbol_count == 0);
    for (const int count : table.counts) CHECK(count == 0);
}

void single_symbol() {
    for (const int symbol : {0, 1, 15, 240, 255}) {
        Frequencies frequencies{};
        frequencies[symbol] = 7;
        const slip::EncodeTable table = encode_table(frequencies);
        CHECK(table.length[symbol] == 1 && table.code[symbol] == 0);
        check_all(frequencies);
    }
}

void all_symbols() {
    Frequencies frequencies;
    frequencies.fill(1);
    check_all(frequencies);
    frequencies.fill(0xFFFFFFFFu);
    check_all(frequencies);
    for (int s = 0; s < 256; ++s) frequencies[s] = static_cast<std::uint32_t>(s + 1);
    check_all(frequencies);
    for (int s = 0; s < 256; ++s) frequencies[s] = 1u << (s & 31);
    check_all(frequencies);
}

// An unlimited tree over these would be as deep as it has symbols.
void fibonacci_needs_the_limit() {
    for (const int count : {17, 18, 20, 30, 46}) {
        check::looking_at(std::to_string(count) + " symbols");
        Frequencies frequencies{};
        std::uint32_t a = 1, b = 1;
        for (int s = 0; s < count; ++s) {
            frequencies[s * 5] = a;
            const std::uint32_t next = a + b;
            a = b;
            b = next;
        }
        const slip::EncodeTable table = encode_table(frequencies);
        CHECK(*std::max_element(table.length.begin(), table.length.end()) == 16);
        check_all(frequencies);
        CHECK(bits_spent(frequencies, table) <= 1.01 * best_bits(frequencies));
    }
}

void powers_of_two_need_the_limit() {
    Frequencies frequencies{};
    for (int s = 0; s < 32; ++s) frequencies[s] = 1u << s;
    check_all(frequencies);
    frequencies.fill(1);
    for (int s = 0; s < 24; ++s) frequencies[200 + s] = 1u << (s + 8);
    check_all(frequencies);
}

void near_the_best_and_the_entropy() {
    Random random(10);
    for (int round = 0; round < 60; ++round) {
        Frequencies frequencies{};
        const int symbols = random.between(2, 256), skew = random.between(0, 12);
        double total = 0;
        for (int i = 0; i < symbols; ++i) {
            const int s = random.between(0, 255);
            frequencies[s] =
                static_cast<std::uint32_t>(random.between(1, 1000)) >> random.between(0, skew);
            total += frequencies[s];
        }
        if (total == 0) continue;
        const slip::EncodeTable table = encode_table(frequencies);
        check_all(frequencies);
        const double spent = bits_spent(frequencies, table);
        CHECK(spent >= entropy_bits(frequencies) - 1e-6);
        CHECK(spent <= entropy_bits(frequencies) + total);  // less than one bit a symbol over
        const int longest = *std::max_element(table.length.begin(), table.length.end());
        if (longest < 16) CHECK(spent == best_bits(frequencies));
    }
}

void equal_counts_give_equal_codes() {
    Random random(11);
    Frequencies frequencies;
    for (auto& f : frequencies) f = static_cast<std::uint32_t>(random.between(0, 3));
    const slip::EncodeTable a = encode_table(frequencies), b = encode_table(frequencies);
    CHECK(a.code == b.code && a.length == b.length && a.symbols == b.symbols);
}

slip::HuffmanSpec spec(const std::array<std::uint8_t, 16>& counts,
                       const std::array<std::uint8_t, 256>& symbols) {
    int total = 0;
    for (const int count : counts) total += count;
    return {counts.data(), symbols.data(), total};
}

void invalid_specs_are_refused() {
    std::array<std::uint8_t, 256> symbols{};
    for (int s = 0; s < 256; ++s) symbols[s] = static_cast<std::uint8_t>(s & 15);
    slip::DecodeTable table;
    const auto status = [&](std::array<std::uint8_t, 16> counts, bool is_dc) {
        return slip::build_decode_table(spec(counts, symbols), is_dc, table);
    };
    CHECK(status({3}, false) == Status::huffman_table);     // three codes of one bit
    CHECK(status({2, 1}, false) == Status::huffman_table);  // nothing left for a longer one
    CHECK(status({1, 3}, false) == Status::huffman_table);
    CHECK(status({0, 0, 9}, false) == Status::huffman_table);
    CHECK(status({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3}, true) == Status::huffman_table);
    CHECK(status({255, 1}, false) == Status::huffman_table);
    CHECK(status({2}, false) == Status::ok);  // all ones: forbidden to writers, harmless to readers
    CHECK(status({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2}, true) == Status::ok);
    CHECK(status({}, true) == Status::ok);
    symbols[1] = 16;
    CHECK(status({0, 2}, true) == Status::huffman_table);  // no DC difference has 16 bits
    CHECK(status({0, 2}, false) == Status::ok);
    symbols[1] = 15;
    CHECK(status({0, 2}, true) == Status::ok);
}

// Codes that a table does not hold are found out, whatever their length.
void unknown_codes_are_bad() {
    Random random(12);
    for (int round = 0; round < 200; ++round) {
        std::array<std::uint8_t, 16> counts{};
        std::array<std::uint8_t, 256> symbols{};
        int room = 2, total = 0;
        for (int length = 0; length < 16; ++length, room *= 2) {
            const int count = random.between(0, std::min({room, 3, 255 - total}));
            counts[length] = static_cast<std::uint8_t>(count);
            room -= count;
            total += count;
        }
        for (auto& symbol : symbols) symbol = random.byte();
        slip::DecodeTable table;
        CHECK(slip::build_decode_table(spec(counts, symbols), false, table) == Status::ok);
        int code = 0;  // the first code of 16 bits that is not used
        for (int length = 0; length < 16; ++length) code = (code << 1) + counts[length];
        for (int i = 0; i < 64; ++i) {
            const int top =
                random.chance(4) ? random.between(code - 2, code + 1) : random.between(0, 0xFFFF);
            if (top < 0 || top > 0xFFFF) continue;
            slip::under_test::Stream stream{};
            stream.count = 64;
            stream.bits = std::uint64_t(top) << 48 | (random.next() >> 16);
            slip::under_test::symbol<false>(stream, table);
            CHECK(stream.bad == (top >= code));
        }
    }
}

}  // namespace

int main() {
    check::run("no symbol", no_symbol);
    check::run("single symbol", single_symbol);
    check::run("all 256 symbols", all_symbols);
    check::run("Fibonacci frequencies need the limit", fibonacci_needs_the_limit);
    check::run("powers of two need the limit", powers_of_two_need_the_limit);
    check::run("near the best code and the entropy", near_the_best_and_the_entropy);
    check::run("equal counts give equal codes", equal_counts_give_equal_codes);
    check::run("invalid specs are refused", invalid_specs_are_refused);
    check::run("unknown codes are bad", unknown_codes_are_bad);
    return check::finish();
}
