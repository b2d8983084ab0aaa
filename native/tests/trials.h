// What is done with bytes that may be anything: by the fixed corpus of test_mutations and by the
// fuzzers.
#pragma once

#include <cstdlib>
#include <stdexcept>

#include "coefficient_maker.h"
#include "engine.h"
#include "orientation.h"
#include "rewrite.h"

namespace testing {

inline bool is_status(slip::Status status) {
    const int number = static_cast<int>(status);
    const bool listed = (number >= 0 && number <= 5) || (number >= 32 && number <= 43);
    return listed && std::string(slip::status_text(status)) != "unknown status";
}

struct Trial {
    slip::Status status;  // the first thing that was said about the bytes
    bool sound = true;    // whether everything that was promised held
};

// Decodes with every build of the engine; they agree on the status and on every pixel.
inline Trial try_decode(const Bytes& bytes, slip::Coding coding, const slip::Box& box,
                        const Shape& shape, slip::Scratch& scratch) {
    Trial trial{slip::Status::ok};
    Image first;
    for (const Engine& engine : engines()) {
        Decoded got = decode(engine, bytes, coding, box, shape, scratch);
        trial.sound &= is_status(got.status);
        if (first.pixels.empty()) {
            trial.status = got.status;
            first = std::move(got.image);
            continue;
        }
        trial.sound &= got.status == trial.status;
        if (trial.status == slip::Status::ok) trial.sound &= got.image.pixels == first.pixels;
    }
    return trial;
}

// A box that is mostly inside a picture of this size.
inline slip::Box any_box(Random& random, int width, int height) {
    if (random.chance(10)) {
        return {random.between(-5, width + 5), random.between(-5, height + 5),
                random.between(-1, width + 5), random.between(-1, height + 5)};
    }
    return random.chance(3) ? slip::Box{0, 0, width, height} : random_box(random, width, height);
}

// Coefficients that came out of a record can go into one again, and into a file.
inline bool survives_rewriting(const slip::Coefficients& picture) {
    Bytes record;
    const slip::Status status = slip::encode_tile_record(picture, record);
    if (status == slip::Status::unsupported) return true;
    slip::Coefficients back;
    if (status != slip::Status::ok || read_record(record, back) != slip::Status::ok) return false;
    return same_coefficients(picture, back);
}

inline bool survives_export(const slip::Coefficients& picture) {
    Bytes file;
    try {
        file = slip::write_jpeg(picture);
    } catch (const std::runtime_error&) {
        return true;
    }
    slip::Coefficients back;
    const slip::ReadResult result = slip::read_coefficients(file.data(), file.size(), back);
    // Damaged markers may turn the file into something else, but then it says so or is another
    // picture.
    return is_status(result.status);
}

// Bytes that claim to be a tile record.
inline Trial try_record(const Bytes& bytes, Random& random, slip::Scratch& scratch) {
    const auto record = std::make_unique<slip::TileRecord>();
    Trial trial{slip::parse_tile_record(bytes.data(), bytes.size(), *record)};
    trial.sound = is_status(trial.status);
    int width = random.between(1, 64), height = random.between(1, 64);
    if (trial.status == slip::Status::ok) {
        width = record->header.frame.width;
        height = record->header.frame.height;
        slip::Coefficients picture;
        trial.status = slip::decode_tile_record(*record, picture);
        trial.sound &= is_status(trial.status);
        if (trial.status == slip::Status::ok) {
            trial.sound &= survives_rewriting(picture) && survives_export(picture);
        }
    }
    const slip::Box whole{0, 0, width, height};
    const Trial all =
        try_decode(bytes, slip::Coding::tiles, whole, random_shape(random, 40), scratch);
    // The whole picture uses every segment, so both ways of reading must agree.
    trial.sound &=
        all.sound && (all.status == slip::Status::ok) == (trial.status == slip::Status::ok);
    const slip::Box box = any_box(random, width, height);
    const Trial part =
        try_decode(bytes, slip::Coding::tiles, box, random_windowed_shape(random, 60), scratch);
    trial.sound &= part.sound;
    return trial;
}

// Whether libjpeg's SIMD versions agree on the pixels: they overflow in different ways, and the
// engine follows the one for arm64 in all of them, the one for x86-64 but for its shortcuts.
inline bool same_everywhere(const slip::Coefficients& picture) {
#if defined(__aarch64__)
    (void)picture;
#else
    for (int c = 0; c < picture.frame.component_count; ++c) {
        const slip::Plane& plane = picture.planes[c];
        for (std::size_t i = 0; i < plane.blocks.size(); ++i) {
            if (std::abs(plane.blocks[i] * plane.quant[i % 64]) >= 8192) return false;
        }
    }
#endif
    return true;
}

// Bytes that claim to be a JPEG file.
inline Trial try_file(const Bytes& bytes, Random& random, slip::Scratch& scratch) {
    const slip::Rewritten rewritten =
        slip::rewrite_jpeg(bytes.data(), bytes.size(), random.chance(2));
    Trial trial{rewritten.status};
    trial.sound = is_status(rewritten.status) && rewritten.orientation >= 1 &&
                  rewritten.orientation <= 8 &&
                  rewritten.record.empty() == (rewritten.status != slip::Status::ok);
    int width = random.between(1, 64), height = random.between(1, 64);
    slip::Coefficients source;
    if (rewritten.status == slip::Status::ok) {
        width = rewritten.width;
        height = rewritten.height;
        slip::Coefficients packed;
        trial.sound &= read_record(rewritten.record, packed) == slip::Status::ok;
        trial.sound &= packed.frame.width == width && packed.frame.height == height;
        slip::read_coefficients(bytes.data(), bytes.size(), source);
        if (!rewritten.oriented) trial.sound &= same_coefficients(source, packed);
    }
    const slip::Box box = any_box(random, width, height);
    const Shape shape = random_windowed_shape(random, 60);
    const Trial decoded = try_decode(bytes, slip::Coding::file, box, shape, scratch);
    trial.sound &= decoded.sound;
    if (rewritten.status == slip::Status::ok && !rewritten.oriented && same_everywhere(source)) {
        // A file that was rewritten without a complaint gives the same pixels either way.
        const auto once = [&](const Bytes& data, slip::Coding coding) {
            return decode(engines()[0], data, coding, box, shape, scratch);
        };
        const Decoded a = once(bytes, slip::Coding::file),
                      b = once(rewritten.record, slip::Coding::tiles);
        trial.sound &= a.status == b.status;
        if (a.status == slip::Status::ok) trial.sound &= a.image.pixels == b.image.pixels;
    }
    return trial;
}

}  // namespace testing
