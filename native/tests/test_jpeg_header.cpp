#include "jpeg_header.h"

#include <numeric>

#include "check.h"
#include "jpeg_maker.h"
#include "random.h"

namespace {

using slip::Bytes;
using slip::JpegHeader;
using slip::Status;
using testing::Random;

Bytes segment(int marker, const Bytes& content) {
    const std::size_t length = content.size() + 2;
    Bytes out{0xFF, static_cast<std::uint8_t>(marker), static_cast<std::uint8_t>(length >> 8),
              static_cast<std::uint8_t>(length)};
    out.insert(out.end(), content.begin(), content.end());
    return out;
}

Bytes text(const char* string, std::size_t size) { return Bytes(string, string + size); }

// A small header, put together part by part so that a test can spoil one.
struct Parts {
    Bytes soi{0xFF, 0xD8};
    Bytes before;  // whatever comes between SOI and the tables
    Bytes quant_content, frame_content, dc_content, ac_content, scan_content;
    int frame_marker = 0xC0;

    explicit Parts(int components = 1) {
        quant_content.assign(65, 1);
        quant_content[0] = 0;
        std::iota(quant_content.begin() + 1, quant_content.end(), std::uint8_t{1});
        frame_content = {8, 0, 20, 0, 30, static_cast<std::uint8_t>(components)};
        scan_content = {static_cast<std::uint8_t>(components)};
        for (int c = 1; c <= components; ++c) {
            const auto id = static_cast<std::uint8_t>(c);
            frame_content.insert(frame_content.end(), {id, 0x11, 0});
            scan_content.insert(scan_content.end(), {id, 0x00});
        }
        scan_content.insert(scan_content.end(), {0, 63, 0});
        dc_content.assign(18, 0);
        dc_content[1] = 1;
        ac_content = dc_content;
        ac_content[0] = 0x10;
    }

    Bytes join() const {
        Bytes out = soi;
        for (const Bytes& part :
             {before, segment(0xDB, quant_content), segment(frame_marker, frame_content),
              segment(0xC4, dc_content), segment(0xC4, ac_content), segment(0xDA, scan_content)}) {
            out.insert(out.end(), part.begin(), part.end());
        }
        return out;
    }
};

Status parse(const Bytes& bytes, JpegHeader& header) {
    return slip::parse_jpeg_header(bytes.data(), bytes.size(), header);
}

Status parse(const Bytes& bytes) {
    JpegHeader header;
    return parse(bytes, header);
}

void smallest_header() {
    JpegHeader header;
    const Bytes bytes = Parts().join();
    CHECK(parse(bytes, header) == Status::ok);
    CHECK(header.frame.width == 30 && header.frame.height == 20);
    CHECK(header.frame.mcus_per_row == 4 && header.frame.mcu_rows == 3);
    CHECK(header.frame.blocks_per_mcu == 1 && header.frame.block_count() == 12);
    CHECK(header.colour == slip::Colour::gray);
    CHECK(header.size == bytes.size());
    CHECK(header.restart_interval == 0);
    CHECK(header.quant[0][0] == 1 && header.quant[0][8] == 3 && header.quant[0][63] == 64);
    CHECK(header.dc[0].symbol_count == 1 && header.ac[0].counts != nullptr);
    CHECK(!header.dc[1].counts && !header.ac[3].counts);
}

void data_behind_the_scan_header_is_left_alone() {
    Bytes bytes = Parts().join();
    const std::size_t size = bytes.size();
    bytes.insert(bytes.end(), {1, 2, 3, 0xFF});
    JpegHeader header;
    CHECK(parse(bytes, header) == Status::ok);
    CHECK(header.size == size);
}

void every_sampling_of_the_maker() {
    Random random(20);
    for (const auto& sampling : testing::kSamplings) {
        for (const int side : {1, 7, 8, 9, 16, 17, 33, 64, 65}) {
            testing::JpegOptions options;
            options.sampling = sampling;
            options.width = side;
            options.height = 70 - side;
            check::looking_at(testing::describe(options));
            JpegHeader header;
            CHECK(parse(testing::make_jpeg(options, random), header) == Status::ok);
            const slip::Frame& frame = header.frame;
            CHECK(frame.width == options.width && frame.height == options.height);
            CHECK(frame.component_count == sampling.components);
            CHECK((frame.mcus_per_row - 1) * frame.mcu_width() < frame.width);
            CHECK(frame.mcus_per_row * frame.mcu_width() >= frame.width);
            CHECK((frame.mcu_rows - 1) * frame.mcu_height() < frame.height);
            CHECK(frame.mcu_rows * frame.mcu_height() >= frame.height);
            for (int c = 0; c < frame.component_count; ++c) {
                CHECK(frame.components[c].h == sampling.h[c] &&
                      frame.components[c].v == sampling.v[c]);
            }
        }
    }
}

void restart_interval_and_fill_bytes() {
    Parts parts;
    parts.before = segment(0xDD, {0x01, 0x02});
    JpegHeader header;
    CHECK(parse(parts.join(), header) == Status::ok && header.restart_interval == 0x102);
    parts.before.insert(parts.before.begin(), {0xFF, 0xFF, 0xFF});
    CHECK(parse(parts.join(), header) == Status::ok && header.restart_interval == 0x102);
    parts.before = segment(0xDD, {1});
    CHECK(parse(parts.join()) == Status::jpeg_header);
    parts.before = segment(0xDD, {1, 2, 3});
    CHECK(parse(parts.join()) == Status::jpeg_header);
}

void wide_quantization() {
    Parts parts;
    Bytes wide{0x10};
    for (int k = 0; k < 64; ++k) wide.insert(wide.end(), {static_cast<std::uint8_t>(k), 0xFE});
    parts.quant_content = wide;
    JpegHeader header;
    CHECK(parse(parts.join(), header) == Status::ok);
    CHECK(header.quant[0][0] == 0x00FE && header.quant[0][1] == 0x01FE &&
          header.quant[0][63] == 0x3FFE);
}

void colour_rules() {
    const auto colour = [](const Parts& parts) {
        JpegHeader header;
        CHECK(parse(parts.join(), header) == Status::ok);
        return header.colour;
    };
    const auto jfif = segment(0xE0, text("JFIF\0\1\1\0\0\1\0\1\0\0", 14));
    const auto adobe = [](std::uint8_t transform) {
        Bytes content = text("Adobe\0\144\0\0\0\0", 11);
        content.push_back(transform);
        return segment(0xEE, content);
    };
    Parts parts(3);
    CHECK(colour(parts) == slip::Colour::ycc);
    parts.before = adobe(0);
    CHECK(colour(parts) == slip::Colour::rgb);
    parts.before = adobe(1);
    CHECK(colour(parts) == slip::Colour::ycc);
    parts.before = jfif;
    const Bytes more = adobe(0);
    parts.before.insert(parts.before.end(), more.begin(), more.end());
    CHECK(colour(parts) == slip::Colour::ycc);  // JFIF has the first word
    parts = Parts(3);
    const char* names = "RGB";
    for (int c = 0; c < 3; ++c) {
        parts.frame_content[6 + 3 * c] = static_cast<std::uint8_t>(names[c]);
        parts.scan_content[1 + 2 * c] = static_cast<std::uint8_t>(names[c]);
    }
    CHECK(colour(parts) == slip::Colour::rgb);
    parts.before = segment(0xEE, text("Adobe", 5));  // too short to say anything
    CHECK(colour(parts) == slip::Colour::rgb);
    parts.before = jfif;
    CHECK(colour(parts) == slip::Colour::ycc);
}

void every_truncation_is_noticed() {
    Random random(21);
    testing::JpegOptions options;
    options.sampling = testing::kSamplings[3];
    for (const Bytes& bytes : {Parts(3).join(), testing::make_jpeg(options, random)}) {
        JpegHeader header;
        CHECK(parse(bytes, header) == Status::ok);
        for (std::size_t size = 0; size < header.size; ++size) {
            const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
            const Status status = parse(cut);
            CHECK(status == (size < 4 ? Status::unsupported : Status::jpeg_truncated));
        }
    }
}

void what_is_no_jpeg() {
    CHECK(parse({}) == Status::unsupported);
    CHECK(parse({0x89, 'P', 'N', 'G', 13, 10, 26, 10}) == Status::unsupported);
    CHECK(parse({0xFF, 0xD8, 0x00, 0x00}) == Status::unsupported);
    Parts parts;
    parts.before = {0x00};
    CHECK(parse(parts.join()) == Status::unsupported);
    for (const int marker :
         {0x01, 0xBF, 0xD0, 0xD7, 0xD8, 0xD9, 0xC8, 0xCC, 0xDC, 0xDE, 0xF0, 0xFD}) {
        parts.before = segment(marker, {0, 0});
        CHECK(parse(parts.join()) == Status::unsupported);
    }
}

void other_processes_are_unsupported() {
    for (const int marker : {0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}) {
        Parts parts;
        parts.frame_marker = marker;
        CHECK(parse(parts.join()) == Status::unsupported);
    }
    Parts extended;
    extended.frame_marker = 0xC1;
    CHECK(parse(extended.join()) == Status::ok);
}

void hostile_lengths() {
    for (const int length : {0, 1}) {
        Bytes bytes = Parts().join();
        bytes[5] = static_cast<std::uint8_t>(length);
        CHECK(parse(bytes) == Status::jpeg_header);
    }
    Bytes bytes = Parts().join();
    bytes[4] = 0xFF;
    CHECK(parse(bytes) == Status::jpeg_truncated);
    Parts parts;
    parts.quant_content.pop_back();
    CHECK(parse(parts.join()) == Status::jpeg_header);
    parts = Parts();
    parts.quant_content.push_back(0);  // the start of a second table
    CHECK(parse(parts.join()) == Status::jpeg_header);
    parts = Parts();
    parts.quant_content[0] = 0x10;  // says 16 bits, has 8
    CHECK(parse(parts.join()) == Status::jpeg_header);
    for (const int first : {0x04, 0x0F, 0x20, 0xF0}) {
        parts = Parts();
        parts.quant_content[0] = static_cast<std::uint8_t>(first);
        CHECK(parse(parts.join()) == Status::jpeg_header);
    }
}

void hostile_huffman_tables() {
    Parts parts;
    parts.dc_content.resize(16);
    CHECK(parse(parts.join()) == Status::jpeg_header);
    parts = Parts();
    parts.dc_content[1] = 2;  // one symbol is there
    CHECK(parse(parts.join()) == Status::jpeg_header);
    parts = Parts();
    parts.dc_content.assign(17, 0xFF);  // 4080 symbols
    parts.dc_content[0] = 0;
    parts.dc_content.resize(17 + 4080);
    CHECK(parse(parts.join()) == Status::jpeg_header);
    parts.dc_content.assign(17 + 257, 0);
    parts.dc_content[8] = 255;
    parts.dc_content[9] = 2;
    CHECK(parse(parts.join()) == Status::jpeg_header);
    for (const int first : {0x04, 0x14, 0x20, 0xFF}) {
        parts = Parts();
        parts.dc_content[0] = static_cast<std::uint8_t>(first);
        CHECK(parse(parts.join()) == Status::jpeg_header);
    }
    parts = Parts();
    parts.dc_content[0] = 1;  // the scan wants number 0
    CHECK(parse(parts.join()) == Status::unsupported);
}

void hostile_frames() {
    const auto with = [](std::size_t at, int value, int components = 3) {
        Parts parts(components);
        parts.frame_content[at] = static_cast<std::uint8_t>(value);
        return parse(parts.join());
    };
    CHECK(with(0, 12) == Status::unsupported);  // bits a sample
    CHECK(with(2, 0) == Status::unsupported);   // height 0
    CHECK(with(4, 0) == Status::unsupported);   // width 0
    CHECK(with(5, 0) == Status::jpeg_header);
    CHECK(with(5, 1) == Status::jpeg_header);
    CHECK(with(5, 255) == Status::jpeg_header);
    CHECK(with(8, 4) == Status::jpeg_header);  // quantization table 4
    CHECK(with(8, 1) == Status::jpeg_header);  // not defined
    for (const int factors : {0x00, 0x01, 0x10, 0x31, 0x13, 0x33, 0x51, 0x18, 0xFF, 0x44}) {
        CHECK(with(7, factors) == Status::unsupported);
        CHECK(with(7, factors, 1) == Status::ok);  // a lone component's factors mean nothing
    }
    Parts two(2), four(4);
    CHECK(parse(two.join()) == Status::unsupported);
    CHECK(parse(four.join()) == Status::unsupported);
    Parts parts;
    parts.before = segment(0xC0, parts.frame_content);
    CHECK(parse(parts.join()) == Status::jpeg_header);  // two frames
    parts = Parts();
    parts.frame_content.resize(5);
    CHECK(parse(parts.join()) == Status::jpeg_header);
}

void size_limits() {
    const auto sized = [](int width, int height) {
        Parts parts;
        parts.frame_content[1] = static_cast<std::uint8_t>(height >> 8);
        parts.frame_content[2] = static_cast<std::uint8_t>(height);
        parts.frame_content[3] = static_cast<std::uint8_t>(width >> 8);
        parts.frame_content[4] = static_cast<std::uint8_t>(width);
        return parse(parts.join());
    };
    CHECK(sized(65500, 1) == Status::ok);
    CHECK(sized(1, 65500) == Status::ok);
    CHECK(sized(65501, 1) == Status::unsupported);
    CHECK(sized(1, 65535) == Status::unsupported);
    CHECK(sized(16384, 16384) == Status::ok);
    CHECK(sized(16384, 16385) == Status::unsupported);
}

void hostile_scans() {
    const auto with = [](std::size_t at, int value) {
        Parts parts(3);
        parts.scan_content[at] = static_cast<std::uint8_t>(value);
        return parse(parts.join());
    };
    CHECK(with(0, 1) == Status::jpeg_header);
    CHECK(with(0, 4) == Status::jpeg_header);
    CHECK(with(1, 9) == Status::unsupported);  // components in another order
    CHECK(with(2, 0x40) == Status::jpeg_header);
    CHECK(with(2, 0x04) == Status::jpeg_header);
    CHECK(with(2, 0x11) == Status::unsupported);  // tables from elsewhere
    CHECK(with(7, 1) == Status::unsupported);
    CHECK(with(8, 62) == Status::unsupported);
    CHECK(with(9, 0x10) == Status::unsupported);
    Parts parts(3);
    parts.scan_content = {1, 1, 0, 0, 63, 0};
    CHECK(parse(parts.join()) == Status::unsupported);  // one component a scan
    parts.scan_content = {};
    CHECK(parse(parts.join()) == Status::jpeg_header);
    Bytes early{0xFF, 0xD8};  // a scan before its frame
    const Bytes scan = segment(0xDA, Parts().scan_content);
    early.insert(early.end(), scan.begin(), scan.end());
    CHECK(parse(early) == Status::jpeg_header);
}

}  // namespace

int main() {
    check::run("smallest header", smallest_header);
    check::run("data behind the scan header is left alone",
               data_behind_the_scan_header_is_left_alone);
    check::run("every sampling", every_sampling_of_the_maker);
    check::run("restart interval and fill bytes", restart_interval_and_fill_bytes);
    check::run("16-bit quantization", wide_quantization);
    check::run("colour rules", colour_rules);
    check::run("every truncation is noticed", every_truncation_is_noticed);
    check::run("what is no JPEG", what_is_no_jpeg);
    check::run("other processes are unsupported", other_processes_are_unsupported);
    check::run("hostile lengths", hostile_lengths);
    check::run("hostile Huffman tables", hostile_huffman_tables);
    check::run("hostile frames", hostile_frames);
    check::run("size limits", size_limits);
    check::run("hostile scans", hostile_scans);
    return check::finish();
}
