#include "tile_record.h"

#include <stdexcept>

#include "coefficient_maker.h"
#include "rewrite.h"

namespace {

using namespace testing;
using slip::Coefficients;
using slip::Status;

void check_round_trip(const Coefficients& picture) {
    const Bytes record = record_of(picture);
    const Coefficients back = coefficients_of_record(record);
    CHECK(same_coefficients(picture, back));
    CHECK(back.markers == picture.markers);
    CHECK(record_of(back) == record);  // equal input, equal bytes
}

void random_coefficients_come_back() {
    Random random(30);
    for (const Sampling& sampling : kSamplings) {
        for (int round = 0; round < 12; ++round) {
            const int width = random.between(1, 150), height = random.between(1, 90);
            check::looking_at(std::string(sampling.name) + " " + std::to_string(width) + "x" +
                              std::to_string(height));
            const CoefficientStyle style{random.between(1, 1023), random.between(1, 1023),
                                         random.between(1, 40), random.chance(3) ? 65535 : 255};
            check_round_trip(random_coefficients(sampling, width, height, style, random));
        }
    }
}

void every_small_size() {
    Random random(31);
    for (int width = 1; width <= 20; ++width) {
        for (int height = 1; height <= 20; ++height) {
            const Sampling& sampling = kSamplings[(width * 20 + height) % std::size(kSamplings)];
            check::looking_at(std::string(sampling.name) + " " + std::to_string(width) + "x" +
                              std::to_string(height));
            check_round_trip(random_coefficients(sampling, width, height, {}, random));
        }
    }
}

void edges_of_mcus_and_tiles() {
    Random random(32);
    for (const Sampling& sampling : kSamplings) {
        for (const int width : {63, 64, 65, 127, 128, 129, 200}) {
            check::looking_at(std::string(sampling.name) + " width " + std::to_string(width));
            check_round_trip(random_coefficients(sampling, width, 17, {}, random));
            check_round_trip(random_coefficients(sampling, 17, width, {}, random));
        }
    }
}

void thin_and_long() {
    Random random(33);
    const CoefficientStyle style{20, 200, 30, 255};
    check_round_trip(random_coefficients(kSamplings[0], 65500, 1, style, random));
    check_round_trip(random_coefficients(kSamplings[0], 1, 65500, style, random));
    check_round_trip(random_coefficients(kSamplings[3], 9001, 3, style, random));
    check_round_trip(random_coefficients(kSamplings[5], 3, 9001, style, random));
}

// Blocks that are all zero, all full, and full but for the last coefficient; runs of every length.
void special_blocks() {
    Coefficients picture;
    Random random(34);
    picture = random_coefficients(kSamplings[0], 8 * 66, 16, {}, random);
    std::fill(picture.planes[0].blocks.begin(), picture.planes[0].blocks.end(), std::int16_t{0});
    for (int run = 0; run < 64; ++run) {
        picture.planes[0].block(0, run)[slip::kNatural[run]] =
            static_cast<std::int16_t>(run % 2 ? -run : 5);
        picture.planes[0].block(1, run)[0] = static_cast<std::int16_t>(run);
        picture.planes[0].block(1, run)[slip::kNatural[run]] = 1;
        picture.planes[0].block(1, run)[63] = -1;
    }
    for (int k = 0; k < 64; ++k)
        picture.planes[0].block(0, 64)[k] = static_cast<std::int16_t>(k + 1);
    for (int k = 0; k < 63; ++k) picture.planes[0].block(0, 65)[k] = -1;
    check_round_trip(picture);
    std::fill(picture.planes[0].blocks.begin(), picture.planes[0].blocks.end(), std::int16_t{0});
    check_round_trip(picture);
    std::fill(picture.planes[0].blocks.begin(), picture.planes[0].blocks.end(), std::int16_t{-1});
    check_round_trip(picture);
}

// What 8-bit JPEG can hold: AC values of 10 bits, DC differences of 11.
void extreme_values_come_back() {
    Random random(35);
    for (const int sampling : {0, 1, 3}) {
        Coefficients picture =
            random_coefficients(kSamplings[sampling], 80, 40, {1023, 1023, 1, 255}, random);
        for (int c = 0; c < picture.frame.component_count; ++c) {
            auto& blocks = picture.planes[c].blocks;
            for (std::size_t i = 0; i < blocks.size(); ++i) {
                const bool dc = i % 64 == 0;
                blocks[i] =
                    static_cast<std::int16_t>(random.chance(2) ? (dc ? -1024 : -1023) : 1023);
            }
        }
        check_round_trip(picture);
        CHECK(same_coefficients(picture, coefficients_of_file(slip::write_jpeg(picture))));
    }
}

// Beyond that a record is either refused or can be given back as a file: never packed and then
// stuck.
void what_is_packed_can_be_exported() {
    Random random(36);
    for (const int at : {0, 1, 63}) {
        for (int bits = 9; bits <= 15; ++bits) {
            for (const int value : {1 << bits, -(1 << bits), (1 << bits) - 1}) {
                check::looking_at("coefficient " + std::to_string(at) + " is " +
                                  std::to_string(value));
                Coefficients picture =
                    random_coefficients(kSamplings[0], 16, 16, {3, 3, 8, 255}, random);
                picture.planes[0].block(0, 0)[0] = 0;
                picture.planes[0].block(0, 0)[at] = static_cast<std::int16_t>(value);
                Bytes record;
                const Status status = slip::encode_tile_record(picture, record);
                CHECK(status == Status::ok || status == Status::unsupported);
                if (bits <= 10 && value == (1 << bits) - 1) CHECK(status == Status::ok);
                if (status != Status::ok) continue;
                CHECK(same_coefficients(picture, coefficients_of_record(record)));
                try {
                    CHECK(same_coefficients(picture,
                                            coefficients_of_file(slip::write_jpeg(picture))));
                } catch (const std::runtime_error&) {
                    CHECK(!"a record that cannot be exported");
                }
            }
        }
    }
}

// A file that fails to be written after its buffer has grown: the markers make it grow.
void failed_export_leaves_memory_sound() {
    Random random(37);
    Coefficients picture = random_coefficients(kSamplings[0], 16, 16, {3, 3, 8, 255}, random);
    picture.markers.assign(20'004, 'x');
    picture.markers[0] = 0xFF;
    picture.markers[1] = 0xFE;
    picture.markers[2] = 20'002 >> 8;
    picture.markers[3] = 20'002 & 0xFF;
    CHECK(slip::write_jpeg(picture).size() > 20'000);
    picture.planes[0].block(0, 0)[5] = 30'000;  // no code for it in 8-bit JPEG
    bool thrown = false;
    try {
        slip::write_jpeg(picture);
    } catch (const std::runtime_error&) {
        thrown = true;
    }
    CHECK(thrown);
}

// Through libjpeg: file -> record -> file, coefficients and markers the same all the way.
void check_file(const Bytes& file) {
    const Coefficients source = coefficients_of_file(file);
    const slip::Rewritten rewritten = slip::rewrite_jpeg(file.data(), file.size(), false);
    CHECK(rewritten.status == Status::ok && rewritten.message.empty());
    CHECK(rewritten.width == source.frame.width && rewritten.height == source.frame.height);
    CHECK(rewritten.orientation == 1 && !rewritten.oriented);
    const Coefficients packed = coefficients_of_record(rewritten.record);
    CHECK(same_coefficients(source, packed));
    CHECK(packed.markers == source.markers);
    const Bytes exported = slip::write_jpeg(packed);
    const Coefficients again = coefficients_of_file(exported);
    CHECK(same_coefficients(source, again));
    CHECK(again.markers == source.markers);
    CHECK(libjpeg_decode(exported).pixels == libjpeg_decode(file).pixels);
}

void every_kind_of_file() {
    Random random(38);
    for (const Sampling& sampling : kSamplings) {
        for (const Scans scans : {Scans::one, Scans::separate, Scans::progressive}) {
            for (const int restart : {0, 1, 5}) {
                JpegOptions options;
                options.sampling = sampling;
                options.scans = scans;
                options.restart_interval = restart;
                options.width = random.between(1, 120);
                options.height = random.between(1, 80);
                options.optimize = random.chance(2);
                options.quality = random.between(10, 100);
                check::looking_at(describe(options));
                check_file(make_jpeg(options, random));
            }
        }
    }
}

void random_kinds_of_file() {
    Random random(39);
    for (int round = 0; round < 150; ++round) {
        const JpegOptions options = random_options(random, 140);
        check::looking_at(describe(options));
        check_file(make_jpeg(options, random));
    }
}

void markers_are_kept_as_they_were() {
    Random random(40);
    JpegOptions options;
    Bytes& markers = options.markers;
    for (int m = 0; m < 40; ++m) {
        // Neither APP0 nor APP14: libjpeg would read a colour space out of them.
        const int marker = m % 5 == 0 ? 0xFE : 0xE1 + random.between(0, 12);
        const int size = m == 7 ? 65'533 : random.between(0, 300);
        markers.insert(markers.end(), {0xFF, static_cast<std::uint8_t>(marker),
                                       static_cast<std::uint8_t>((size + 2) >> 8),
                                       static_cast<std::uint8_t>(size + 2)});
        for (int i = 0; i < size; ++i) markers.push_back(random.byte());
    }
    const Bytes file = make_jpeg(options, random);
    const Coefficients source = coefficients_of_file(file);
    const Bytes jfif(source.markers.begin(), source.markers.begin() + 18);  // libjpeg's own
    CHECK(jfif[1] == 0xE0);
    CHECK(Bytes(source.markers.begin() + 18, source.markers.end()) == markers);
    check_file(file);
}

void files_that_stay_files() {
    Random random(41);
    JpegOptions options;
    options.width = options.height = 40;
    const Bytes file = make_jpeg(options, random);
    const auto status = [](const Bytes& bytes) {
        const slip::Rewritten rewritten = slip::rewrite_jpeg(bytes.data(), bytes.size(), false);
        CHECK(rewritten.record.empty() == (rewritten.status != Status::ok));
        CHECK(rewritten.message.empty() == (rewritten.status == Status::ok));
        return rewritten.status;
    };
    CHECK(status(file) == Status::ok);
    CHECK(status({}) == Status::unsupported);
    CHECK(status({'G', 'I', 'F', '8', '9', 'a'}) == Status::unsupported);
    CHECK(slip::is_corrupt(status(Bytes(file.begin(), file.begin() + 200))));
    CHECK(status(Bytes(file.begin(), file.end() - 40)) == Status::jpeg_truncated);
    options.arithmetic = true;
    CHECK(status(make_jpeg(options, random)) == Status::unsupported);
    options.arithmetic = false;
    options.sampling.h = {3, 1, 1};
    CHECK(status(make_jpeg(options, random)) == Status::unsupported);
}

void put_u32(Bytes& bytes, std::size_t at, std::uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::uint8_t>(value >> 8 * i);
}

// A record whose B is 0: one segment, so that all are equally long.
Bytes small_record() {
    Random random(42);
    return record_of(random_coefficients(kSamplings[0], 30, 8, {50, 50, 8, 255}, random));
}

Status status_of(const Bytes& record) {
    Coefficients picture;
    return read_record(record, picture);
}

void every_truncation_is_refused() {
    Random random(43);
    Coefficients marked = random_coefficients(kSamplings[3], 150, 40, {50, 50, 8, 255}, random);
    marked.markers = {0xFF, 0xFE, 0, 4, 'h', 'i'};
    for (const Bytes& record : {small_record(), record_of(marked)}) {
        CHECK(status_of(record) == Status::ok);
        for (std::size_t size = 0; size < record.size(); ++size) {
            // A vector of exactly this size, so that a read beyond it does not go unnoticed.
            const Bytes cut(record.begin(), record.begin() + static_cast<std::ptrdiff_t>(size));
            CHECK(slip::is_corrupt(status_of(cut)));
        }
        Bytes longer = record;
        longer.push_back(0);
        CHECK(slip::is_corrupt(status_of(longer)));
    }
}

void every_fixed_field_is_checked() {
    const Bytes sound = small_record();
    const auto with = [&](std::size_t at, int value) {
        Bytes record = sound;
        record[at] = static_cast<std::uint8_t>(value);
        return status_of(record);
    };
    CHECK(with(0, 't') == Status::record_magic);
    CHECK(with(3, '2') == Status::record_magic);
    for (const int at : {4, 8, 12}) {
        for (const std::uint32_t value : {0u, 1u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
            Bytes record = sound;
            put_u32(record, at, value);
            if (record != sound) CHECK(slip::is_corrupt(status_of(record)));
        }
    }
    CHECK(slip::is_corrupt(with(16, 0)));
    CHECK(slip::is_corrupt(with(16, 65)));
    CHECK(slip::is_corrupt(with(17, 1)));
    CHECK(slip::is_corrupt(with(18, 1)));  // colour of a gray picture
    CHECK(slip::is_corrupt(with(18, 3)));
    CHECK(slip::is_corrupt(with(19, 17)));
    CHECK(slip::is_corrupt(with(19, 255)));
    CHECK(slip::is_corrupt(with(20, sound[20] - 1)));
    CHECK(slip::is_corrupt(with(20, sound[20] + 1)));
    CHECK(slip::is_corrupt(with(21, 1)));
    CHECK(slip::is_corrupt(with(22, 1)));
    CHECK(slip::is_corrupt(with(23, 1)));
}

// Where T says that there is one segment but the picture needs hundreds of blocks for each byte.
void pictures_larger_than_their_data_are_refused() {
    Random random(44);
    Bytes record = record_of(random_coefficients(kSamplings[0], 512, 8, {1, 1, 60, 255}, random));
    record[16] = 64;  // all MCUs of the row in one tile: no segment of one byte can hold 64 blocks
    put_u32(record, 12, 1);
    const std::size_t header_bytes = record[4] | record[5] << 8;
    record[19] = 0;
    record[20] = 1;
    record[21] = 0;
    record.resize(slip::kTileRecordFixedBytes + header_bytes + slip::kLengthPadding);
    record.push_back(0);
    slip::TileRecord parsed;
    CHECK(slip::is_corrupt(slip::parse_tile_record(record.data(), record.size(), parsed)));
    CHECK(slip::is_corrupt(status_of(record)));
}

void the_header_holds_nothing_else() {
    const Bytes sound = small_record();
    const Bytes comment{0xFF, 0xFE, 0, 3, 'x'}, restart{0xFF, 0xDD, 0, 4, 0, 1}, fill{0xFF};
    for (const Bytes& extra : {comment, restart, fill}) {
        Bytes record = sound;
        record.insert(record.begin() + slip::kTileRecordFixedBytes + 2, extra.begin(), extra.end());
        put_u32(record, 4, static_cast<std::uint32_t>((record[4] | record[5] << 8) + extra.size()));
        CHECK(status_of(record) == Status::record_header);
    }
}

// Tiles of other widths than the writer's: the format allows 1 to 64 MCUs.
void foreign_tile_widths() {
    Random random(45);
    const Coefficients picture =
        random_coefficients(kSamplings[0], 8, 100, {50, 50, 8, 255}, random);
    Bytes record = record_of(picture);
    for (int tile_mcus = 1; tile_mcus <= 64; ++tile_mcus) {
        record[16] = static_cast<std::uint8_t>(tile_mcus);  // one MCU a row, whatever the width
        CHECK(same_coefficients(picture, coefficients_of_record(record)));
    }
}

}  // namespace

int main() {
    check::run("random coefficients come back", random_coefficients_come_back);
    check::run("every small size", every_small_size);
    check::run("edges of MCUs and tiles", edges_of_mcus_and_tiles);
    check::run("thin and long", thin_and_long);
    check::run("special blocks", special_blocks);
    check::run("extreme values come back", extreme_values_come_back);
    check::run("what is packed can be exported", what_is_packed_can_be_exported);
    check::run("every kind of file", every_kind_of_file);
    check::run("random kinds of file", random_kinds_of_file);
    check::run("markers are kept as they were", markers_are_kept_as_they_were);
    check::run("files that stay files", files_that_stay_files);
    check::run("every truncation is refused", every_truncation_is_refused);
    check::run("every fixed field is checked", every_fixed_field_is_checked);
    check::run("pictures larger than their data are refused",
               pictures_larger_than_their_data_are_refused);
    check::run("the header holds nothing else", the_header_holds_nothing_else);
    check::run("foreign tile widths", foreign_tile_widths);
    check::run("a failed export leaves memory sound", failed_export_leaves_memory_sound);
    return check::finish();
}
