// Coefficients into a tile record: symbols first, then the best tables for them, then bits.
#include <algorithm>
#include <cstring>

#include "huffman.h"
#include "tile_record.h"

namespace slip {
namespace {

// A coded symbol with its extra bits, waiting for the tables. DC and AC tables of luma are 0 and 1,
// of chroma 2 and 3.
struct Token {
    std::uint8_t table, symbol;
    std::uint16_t bits;
};

int bit_length(int value) { return value ? 32 - __builtin_clz(static_cast<unsigned>(value)) : 0; }

class Encoder {
  public:
    explicit Encoder(const Coefficients& source) : source_(source), frame_(source.frame) {}

    Status run(Bytes& record) {
        tile_mcus_ = std::max(1, 8 / frame_.h_max);
        tiles_per_row_ = Frame::ceil_div(frame_.mcus_per_row, tile_mcus_);
        tokenize();
        if (out_of_range_) return Status::unsupported;
        for (int t = 0; t < (frame_.component_count == 1 ? 2 : 4); ++t) {
            build_encode_table(frequencies_[t], tables_[t]);
        }
        record.clear();
        write(record);
        return Status::ok;
    }

  private:
    void put(int table, int symbol, int bits) {
        tokens_.push_back({static_cast<std::uint8_t>(table), static_cast<std::uint8_t>(symbol),
                           static_cast<std::uint16_t>(bits)});
        ++frequencies_[table][symbol];
    }

    // Magnitude bits as T.81 F.1.2.1 wants them: negative values one less, in ones' complement.
    void put_value(int table, int run, int value) {
        const int size = bit_length(value < 0 ? -value : value);
        out_of_range_ |= size > (table & 1 ? 10 : 11);  // more has no code in 8-bit JPEG
        const int bits = (value < 0 ? value - 1 : value) & ((1 << size) - 1);
        put(table, run << 4 | (size & 15), bits);
    }

    void tokenize_block(const std::int16_t* block, int table, int& predictor) {
        put_value(table, 0, block[0] - predictor);
        predictor = block[0];
        int run = 0;
        int last = 63;
        while (last > 0 && block[kNatural[last]] == 0) --last;
        for (int k = 1; k <= last; ++k) {
            const int value = block[kNatural[k]];
            if (value == 0) {
                ++run;
                continue;
            }
            for (; run > 15; run -= 16) put(table + 1, 0xF0, 0);
            put_value(table + 1, run, value);
            run = 0;
        }
        if (last < 63) put(table + 1, 0, 0);
    }

    void tokenize_mcu(int mcu_row, int mcu_column, int (&predictors)[kMaxComponents]) {
        for (int c = 0; c < frame_.component_count; ++c) {
            const Component& component = frame_.components[c];
            const Plane& plane = source_.planes[c];
            const int table = c == 0 ? 0 : 2;
            for (int y = 0; y < component.v; ++y) {
                for (int x = 0; x < component.h; ++x) {
                    const int row = mcu_row * component.v + y,
                              column = mcu_column * component.h + x;
                    if (row < plane.height_blocks && column < plane.width_blocks) {
                        tokenize_block(plane.block(row, column), table, predictors[c]);
                    } else {
                        put(table, 0, 0);
                        put(table + 1, 0, 0);
                    }
                }
            }
        }
    }

    void tokenize() {
        const std::size_t segments = static_cast<std::size_t>(tiles_per_row_) * frame_.mcu_rows;
        segment_ends_.reserve(segments);
        for (int row = 0; row < frame_.mcu_rows; ++row) {
            for (int tile = 0; tile < tiles_per_row_; ++tile) {
                int predictors[kMaxComponents] = {};
                const int first = tile * tile_mcus_;
                const int end = std::min(first + tile_mcus_, frame_.mcus_per_row);
                for (int m = first; m < end; ++m) tokenize_mcu(row, m, predictors);
                segment_ends_.push_back(tokens_.size());
            }
        }
    }

    static void put_u16(Bytes& out, int value) {
        out.push_back(static_cast<std::uint8_t>(value >> 8));
        out.push_back(static_cast<std::uint8_t>(value));
    }

    // Number of the first component with the same quantization.
    int quant_of(int c) const {
        for (int earlier = 0; earlier < c; ++earlier) {
            if (source_.planes[earlier].quant == source_.planes[c].quant) return earlier;
        }
        return c;
    }

    void write_quant(Bytes& out, bool& wide) const {
        for (int c = 0; c < frame_.component_count; ++c) {
            if (quant_of(c) != c) continue;
            const auto& quant = source_.planes[c].quant;
            const bool two_bytes =
                std::any_of(quant.begin(), quant.end(), [](int q) { return q > 255; });
            wide |= two_bytes;
            out.insert(out.end(), {0xFF, 0xDB});
            put_u16(out, 3 + (two_bytes ? 128 : 64));
            out.push_back(static_cast<std::uint8_t>(two_bytes << 4 | c));
            for (int k = 0; k < 64; ++k) {
                if (two_bytes) out.push_back(static_cast<std::uint8_t>(quant[kNatural[k]] >> 8));
                out.push_back(static_cast<std::uint8_t>(quant[kNatural[k]]));
            }
        }
    }

    void write_frame(Bytes& out, bool wide) const {
        out.insert(out.end(), {0xFF, static_cast<std::uint8_t>(wide ? 0xC1 : 0xC0)});
        put_u16(out, 8 + 3 * frame_.component_count);
        out.push_back(8);
        put_u16(out, frame_.height);
        put_u16(out, frame_.width);
        out.push_back(static_cast<std::uint8_t>(frame_.component_count));
        for (int c = 0; c < frame_.component_count; ++c) {
            const Component& component = frame_.components[c];
            out.push_back(static_cast<std::uint8_t>(component.id));
            out.push_back(static_cast<std::uint8_t>(component.h << 4 | component.v));
            out.push_back(static_cast<std::uint8_t>(quant_of(c)));
        }
    }

    void write_huffman(Bytes& out) const {
        for (int t = 0; t < (frame_.component_count == 1 ? 2 : 4); ++t) {
            const EncodeTable& table = tables_[t];
            out.insert(out.end(), {0xFF, 0xC4});
            put_u16(out, 19 + table.symbol_count);
            out.push_back(static_cast<std::uint8_t>((t & 1) << 4 | t >> 1));
            out.insert(out.end(), table.counts.begin() + 1, table.counts.end());
            out.insert(out.end(), table.symbols.begin(),
                       table.symbols.begin() + table.symbol_count);
        }
    }

    void write_scan(Bytes& out) const {
        out.insert(out.end(), {0xFF, 0xDA});
        put_u16(out, 6 + 2 * frame_.component_count);
        out.push_back(static_cast<std::uint8_t>(frame_.component_count));
        for (int c = 0; c < frame_.component_count; ++c) {
            out.push_back(static_cast<std::uint8_t>(frame_.components[c].id));
            out.push_back(c == 0 ? 0x00 : 0x11);
        }
        out.insert(out.end(), {0, 63, 0});
    }

    std::size_t encoded_bytes() const {
        std::size_t bits = 8 * segment_ends_.size();
        for (const Token& token : tokens_) bits += tables_[token.table].length[token.symbol] + 16;
        return bits / 8 + 16;
    }

    static void put_u32(std::uint8_t* p, std::size_t value) {
        for (int i = 0; i < 4; ++i) p[i] = static_cast<std::uint8_t>(value >> 8 * i);
    }

    // Codes one segment at `out` and returns its end. Up to 8 bytes behind it are overwritten.
    std::uint8_t* write_segment(std::uint8_t* out, std::size_t first, std::size_t end) const {
        std::uint64_t bits = 0;
        int count = 0;
        const auto put_bits = [&](std::uint64_t value, int size) {
            bits = bits << size | value;
            count += size;
            if (count >= 32) {
                count -= 32;
                const std::uint32_t word =
                    __builtin_bswap32(static_cast<std::uint32_t>(bits >> count));
                std::memcpy(out, &word, 4);
                out += 4;
            }
        };
        for (std::size_t i = first; i < end; ++i) {
            const Token token = tokens_[i];
            const EncodeTable& table = tables_[token.table];
            const int size = token.symbol & 15;
            const std::uint64_t code = table.code[token.symbol];
            put_bits(code << size | token.bits, table.length[token.symbol] + size);
        }
        const int padding = -count & 7;
        put_bits((1u << padding) - 1, padding);
        for (; count > 0; count -= 8) *out++ = static_cast<std::uint8_t>(bits >> (count - 8));
        return out;
    }

    void write_lengths(Bytes& record, const std::vector<std::size_t>& lengths, int bits,
                       std::size_t shortest) const {
        const std::size_t start = record.size();
        record.resize(start + (lengths.size() * bits + 7) / 8 + kLengthPadding);
        if (bits == 0) return;
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            const std::size_t bit = i * bits;
            const std::size_t field = (lengths[i] - shortest) << (bit & 7);
            for (int byte = 0; byte < 3; ++byte) {
                // The padding takes the zero bytes of the last field.
                record[start + (bit >> 3) + byte] |= static_cast<std::uint8_t>(field >> 8 * byte);
            }
        }
    }

    void write(Bytes& record) const {
        record.assign(kTileRecordFixedBytes, 0);
        record.insert(record.end(), {0xFF, 0xD8});
        Bytes quant;
        bool wide = false;
        write_quant(quant, wide);
        record.insert(record.end(), quant.begin(), quant.end());
        write_frame(record, wide);
        write_huffman(record);
        write_scan(record);
        const std::size_t header_bytes = record.size() - kTileRecordFixedBytes;

        Bytes segments(encoded_bytes());
        std::uint8_t* out = segments.data();
        std::vector<std::size_t> lengths;
        std::size_t first = 0;
        for (const std::size_t end : segment_ends_) {
            const std::uint8_t* begin = out;
            out = write_segment(out, first, end);
            lengths.push_back(static_cast<std::size_t>(out - begin));
            first = end;
        }
        const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
        const int bits = bit_length(static_cast<int>(*longest - *shortest));
        write_lengths(record, lengths, bits, *shortest);
        record.insert(record.end(), segments.data(), out);
        record.insert(record.end(), source_.markers.begin(), source_.markers.end());

        std::memcpy(record.data(), kTileRecordMagic, 4);
        put_u32(record.data() + 4, header_bytes);
        put_u32(record.data() + 8, source_.markers.size());
        put_u32(record.data() + 12, lengths.size());
        record[16] = static_cast<std::uint8_t>(tile_mcus_);
        record[18] = static_cast<std::uint8_t>(source_.colour);
        record[19] = static_cast<std::uint8_t>(bits);
        record[20] = static_cast<std::uint8_t>(*shortest);
        record[21] = static_cast<std::uint8_t>(*shortest >> 8);
    }

    const Coefficients& source_;
    const Frame& frame_;
    int tile_mcus_ = 0, tiles_per_row_ = 0;
    bool out_of_range_ = false;
    std::vector<Token> tokens_;
    std::vector<std::size_t> segment_ends_;  // numbers of tokens
    std::array<std::array<std::uint32_t, 256>, 4> frequencies_{};
    std::array<EncodeTable, 4> tables_;
};

}  // namespace

Status encode_tile_record(const Coefficients& coefficients, Bytes& record) {
    return Encoder(coefficients).run(record);
}

}  // namespace slip
