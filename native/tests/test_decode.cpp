#include "decode.h"

#include "coefficient_maker.h"
#include "engine.h"
#include "rewrite.h"

namespace {

using namespace testing;
using slip::Box;
using slip::Coding;
using slip::Status;

Bytes record_of_file(const Bytes& file) {
    const slip::Rewritten rewritten = slip::rewrite_jpeg(file.data(), file.size(), false);
    CHECK(rewritten.status == Status::ok);
    return rewritten.record;
}

// The crop alone, without a resize, from every build of the engine.
void check_crop(const Bytes& bytes, Coding coding, const Image& whole, const Box& box,
                slip::Scratch& scratch) {
    const Image expected = crop(whole, box.x, box.y, box.width, box.height);
    for (const Engine& engine : engines()) {
        const Decoded got = decode(engine, bytes, coding, box, {box.width, box.height}, scratch);
        CHECK(got.status == Status::ok);
        CHECK(got.image.pixels == expected.pixels);
    }
}

void check_crops(const Bytes& file, const std::string& what, int crops, Random& random,
                 slip::Scratch& scratch) {
    const Image whole = libjpeg_decode(file);
    const Bytes record = record_of_file(file);
    for (int i = 0; i <= crops; ++i) {
        const Box box = i ? random_box(random, whole.width, whole.height)
                          : Box{0, 0, whole.width, whole.height};
        check::looking_at(what + ", " + describe(box));
        check_crop(record, Coding::tiles, whole, box, scratch);
        check_crop(file, Coding::file, whole, box, scratch);
    }
}

void crops_of_every_kind_of_file() {
    Random random(50);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (const Sampling& sampling : kSamplings) {
        for (int round = 0; round < 12; ++round) {
            JpegOptions options = random_options(random, 150);
            options.sampling = sampling;
            check_crops(make_jpeg(options, random), describe(options), 8, random, *scratch);
        }
    }
}

void every_small_size() {
    Random random(51);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (int width = 1; width <= 18; ++width) {
        for (int height = 1; height <= 18; ++height) {
            JpegOptions options;
            options.sampling = kSamplings[(5 * width + height) % std::size(kSamplings)];
            options.width = width;
            options.height = height;
            check_crops(make_jpeg(options, random), describe(options), 1, random, *scratch);
        }
    }
}

// Every column and every row, for the filters that look beyond the crop.
void every_start_and_end() {
    Random random(52);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (int s = 1; s < kUsualSamplings; ++s) {
        JpegOptions options;
        options.sampling = kSamplings[s];
        options.width = 71;
        options.height = 39;
        const Bytes file = make_jpeg(options, random), record = record_of_file(file);
        const Image whole = libjpeg_decode(file);
        for (int at = 0; at < 71; ++at) {
            const Box right{at, random.between(0, 30), 71 - at, 9}, left{0, 3, at + 1, 1};
            const Box one{at, at % 39, 1, 1}, down{at % 60, at % 39, 11, 39 - at % 39};
            for (const Box& box : {right, left, one, down}) {
                check::looking_at(describe(options) + ", " + describe(box));
                check_crop(record, Coding::tiles, whole, box, *scratch);
                check_crop(file, Coding::file, whole, box, *scratch);
            }
        }
    }
}

// A window of a resized crop is a part of the whole resized crop.
void windows_of_crops() {
    Random random(57);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (int round = 0; round < 150; ++round) {
        JpegOptions options = random_options(random, 150);
        options.sampling = kSamplings[round % std::size(kSamplings)];
        const Bytes file = make_jpeg(options, random), record = record_of_file(file);
        for (int i = 0; i < 4; ++i) {
            const Box box = random_box(random, options.width, options.height);
            Shape shape = random_shape(random, 60);
            shape.window = random_window(random, shape, 70);
            const slip::Window& window = *shape.window;
            Shape whole{window.full_width, window.full_height, shape.filter, shape.order};
            const Decoded expected =
                decode(engines()[0], record, Coding::tiles, box, whole, *scratch);
            const Image part =
                flip(crop(expected.image, window.left, window.top, shape.width, shape.height),
                     shape.mirror, shape.upside_down);
            check::looking_at(describe(options) + ", " + describe(box));
            for (const Engine& engine : engines()) {
                for (const auto& [bytes, coding] :
                     {std::pair{&record, Coding::tiles}, std::pair{&file, Coding::file}}) {
                    const Decoded got = decode(engine, *bytes, coding, box, shape, *scratch);
                    CHECK(got.status == Status::ok);
                    CHECK(got.image.pixels == part.pixels);
                }
            }
            shape.window->left = shape.window->full_width - shape.width + 1;
            for (const auto& [bytes, coding] :
                 {std::pair{&record, Coding::tiles}, std::pair{&file, Coding::file}}) {
                CHECK(decode(engines()[0], *bytes, coding, box, shape, *scratch).status ==
                      Status::box);
            }
        }
    }
}

// Straight from coefficients, so that values appear that no sensible encoder writes. What happens
// when 16 bits overflow differs between libjpeg's own SIMD versions; the engine follows the one for
// arm64.
#if defined(__aarch64__)
constexpr bool kOverflowsAlike = true;
#else
constexpr bool kOverflowsAlike = false;
#endif

void extreme_coefficients() {
    Random random(53);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (int round = 0; round < 60; ++round) {
        CoefficientStyle style{round % 3 ? 1023 : 80, 1023, random.between(1, 30),
                               round % 4 == 0 ? 255 : random.between(1, 40)};
        if (!kOverflowsAlike) style = {60, 60, random.between(1, 30), 5};
        const Sampling& sampling = kSamplings[round % kUsualSamplings];
        const slip::Coefficients picture = random_coefficients(sampling, 72, 40, style, random);
        const Bytes file = slip::write_jpeg(picture), record = record_of(picture);
        const Image whole = libjpeg_decode(file);
        check::looking_at(std::string(sampling.name) + ", values to " +
                          std::to_string(style.largest) + ", steps to " +
                          std::to_string(style.largest_quant));
        check_crop(record, Coding::tiles, whole, {0, 0, 72, 40}, *scratch);
        check_crop(file, Coding::file, whole, {5, 3, 60, 30}, *scratch);
    }
}

// The harshest pixels there are, through the coarsest quantization: overshoot as real files have
// it.
void harsh_pixels() {
    Random random(54);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (int round = 0; round < 48; ++round) {
        JpegOptions options;
        options.width = 80;
        options.height = 48;
        options.sampling = kSamplings[round % kUsualSamplings];
        options.quality = round % 2 ? 1 : 100;
        options.wide_quant = round % 3 == 0;
        Image image = make_image(options.width, options.height);
        const int cell = 1 + round % 4;
        for (int y = 0; y < image.height; ++y) {
            for (int x = 0; x < image.width; ++x) {
                const bool bright = round % 5 ? (x / cell + y / cell) % 2 : random.chance(2);
                for (int c = 0; c < 3; ++c)
                    image.at(x, y)[c] = bright != (c == round % 3) ? 255 : 0;
            }
        }
        check_crops(make_jpeg(options, image), describe(options), 2, random, *scratch);
    }
}

// Blocks that stop early in the zigzag take shorter ways through the transform.
void sparse_blocks() {
    Random random(64);
    const slip::ScratchPtr scratch = slip::make_scratch();
    slip::Coefficients picture = random_coefficients(kSamplings[0], 512, 64, {}, random);
    for (int y = 0; y < 8; ++y) {
        for (int last = 0; last < 64; ++last) {
            std::int16_t* block = picture.planes[0].block(y, last);
            for (int k = 0; k < 64; ++k) {
                const int value = k > last ? 0 : random.between(-40, 40);
                block[slip::kNatural[k]] =
                    static_cast<std::int16_t>(k == last && !value ? 1 : value);
            }
        }
    }
    for (auto& q : picture.planes[0].quant) q = static_cast<std::uint16_t>(random.between(1, 20));
    const Image whole = libjpeg_decode(slip::write_jpeg(picture));
    check_crop(record_of(picture), Coding::tiles, whole, {0, 0, 512, 64}, *scratch);
}

void flips() {
    Random random(55);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (int round = 0; round < 60; ++round) {
        const JpegOptions options = random_options(random, 90);
        const Bytes file = make_jpeg(options, random), record = record_of_file(file);
        const Image whole = libjpeg_decode(file);
        const Box box = random_box(random, whole.width, whole.height);
        const bool mirror = random.chance(2), upside_down = random.chance(2);
        const Image expected =
            flip(crop(whole, box.x, box.y, box.width, box.height), mirror, upside_down);
        check::looking_at(describe(options) + ", " + describe(box));
        for (const Engine& engine : engines()) {
            Shape shape{box.width, box.height};
            shape.mirror = mirror;
            shape.upside_down = upside_down;
            shape.filter = static_cast<slip::Filter>(round % 5);
            shape.order = static_cast<slip::PassOrder>(round % 3);
            CHECK(decode(engine, record, Coding::tiles, box, shape, *scratch).image.pixels ==
                  expected.pixels);
            CHECK(decode(engine, file, Coding::file, box, shape, *scratch).image.pixels ==
                  expected.pixels);
        }
    }
}

// Decoding into a size is decoding, then resizing: test_resize says what the latter is.
void resized_crops() {
    Random random(56);
    const slip::ScratchPtr scratch = slip::make_scratch(), other = slip::make_scratch();
    for (int round = 0; round < 150; ++round) {
        const JpegOptions options = random_options(random, 160);
        const Bytes file = make_jpeg(options, random), record = record_of_file(file);
        const Image whole = libjpeg_decode(file);
        const Box box = random_box(random, whole.width, whole.height);
        const Shape shape = random_shape(random, 120);
        const Image cropped = crop(whole, box.x, box.y, box.width, box.height);
        Image expected = make_image(shape.width, shape.height);
        CHECK(slip::resize_picture(cropped.pixels.data(), box.width, box.height,
                                   target_of(expected, shape), *other) == Status::ok);
        check::looking_at(describe(options) + ", " + describe(box) + ", to " +
                          std::to_string(shape.width) + "x" + std::to_string(shape.height));
        for (const Engine& engine : engines()) {
            CHECK(decode(engine, record, Coding::tiles, box, shape, *scratch).image.pixels ==
                  expected.pixels);
            CHECK(decode(engine, file, Coding::file, box, shape, *scratch).image.pixels ==
                  expected.pixels);
        }
    }
}

void boxes_outside_are_refused() {
    Random random(57);
    const slip::ScratchPtr scratch = slip::make_scratch();
    constexpr int most = 2147483647;
    for (const Scans scans : {Scans::one, Scans::progressive}) {
        JpegOptions options;
        options.width = 50;
        options.height = 30;
        options.scans = scans;
        const Bytes file = make_jpeg(options, random), record = record_of_file(file);
        for (const Box& box :
             {Box{0, 0, 0, 5}, Box{0, 0, 5, 0}, Box{0, 0, -1, 5}, Box{0, 0, 5, -1},
              Box{-1, 0, 5, 5}, Box{0, -1, 5, 5}, Box{0, 0, 51, 30}, Box{0, 0, 50, 31},
              Box{46, 0, 5, 5}, Box{0, 26, 5, 5}, Box{50, 0, 1, 1}, Box{0, 30, 1, 1},
              Box{most, 0, 1, 1}, Box{0, most, 1, 1}, Box{1, 0, most, 1}, Box{0, 1, 1, most},
              Box{most, most, most, most}, Box{-most - 1, 0, most, 1},
              Box{0, 0, -most - 1, -most - 1}}) {
            check::looking_at(describe(box));
            for (const Engine& engine : engines()) {
                CHECK(decode(engine, record, Coding::tiles, box, {4, 4}, *scratch).status ==
                      Status::box);
                CHECK(decode(engine, file, Coding::file, box, {4, 4}, *scratch).status ==
                      Status::box);
            }
        }
    }
}

// One scratch for all pictures gives what a fresh one gives, also after pictures that failed.
void scratch_remembers_nothing() {
    Random random(58);
    const slip::ScratchPtr used = slip::make_scratch();
    for (int round = 0; round < 120; ++round) {
        const JpegOptions options = random_options(random, round % 10 ? 60 : 300);
        const Bytes file = make_jpeg(options, random);
        Bytes bytes = round % 2 ? file : record_of_file(file);
        const Coding coding = round % 2 ? Coding::file : Coding::tiles;
        if (round % 5 == 0) bytes[bytes.size() - bytes.size() / 4] ^= 0x55;
        const Box box = random_box(random, options.width, options.height);
        const Shape shape = random_shape(random, 80);
        const slip::ScratchPtr fresh = slip::make_scratch();
        for (const Engine& engine : engines()) {
            const Decoded a = decode(engine, bytes, coding, box, shape, *used);
            const Decoded b = decode(engine, bytes, coding, box, shape, *fresh);
            CHECK(a.status == b.status);
            if (a.status == Status::ok) CHECK(a.image.pixels == b.image.pixels);
        }
    }
}

void what_is_no_picture() {
    const slip::ScratchPtr scratch = slip::make_scratch();
    const Box box{0, 0, 1, 1};
    for (const Engine& engine : engines()) {
        CHECK(decode(engine, {}, Coding::file, box, {1, 1}, *scratch).status ==
              Status::unsupported);
        CHECK(decode(engine, {'B', 'M', 0, 0}, Coding::file, box, {1, 1}, *scratch).status ==
              Status::unsupported);
        CHECK(decode(engine, {}, Coding::tiles, box, {1, 1}, *scratch).status ==
              Status::record_size);
        CHECK(decode(engine, Bytes(64, 0), Coding::tiles, box, {1, 1}, *scratch).status ==
              Status::record_magic);
        CHECK(slip::is_corrupt(
            decode(engine, {0xFF, 0xD8, 0xFF, 0xD9}, Coding::file, box, {1, 1}, *scratch).status));
    }
}

// A file that ends too early is damaged or left to Pillow, wherever the crop lies: never guessed
// pixels.
void truncated_files_are_refused() {
    Random random(59);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (const Scans scans : {Scans::one, Scans::separate, Scans::progressive}) {
        JpegOptions options;
        options.width = options.height = 90;
        options.scans = scans;
        const Bytes file = make_jpeg(options, random);
        for (const std::size_t lost : {2, 30, 400}) {
            const Bytes cut(file.begin(), file.end() - static_cast<std::ptrdiff_t>(lost));
            for (const Engine& engine : engines()) {
                const Status status =
                    decode(engine, cut, Coding::file, {0, 0, 8, 8}, {8, 8}, *scratch).status;
                CHECK(slip::is_corrupt(status) || status == Status::unsupported);
            }
        }
    }
}

}  // namespace

int main() {
    check::run("crops of every kind of file", crops_of_every_kind_of_file);
    check::run("every small size", every_small_size);
    check::run("every start and end", every_start_and_end);
    check::run("windows of crops", windows_of_crops);
    check::run("extreme coefficients", extreme_coefficients);
    check::run("harsh pixels", harsh_pixels);
    check::run("sparse blocks", sparse_blocks);
    check::run("flips", flips);
    check::run("resized crops", resized_crops);
    check::run("boxes outside are refused", boxes_outside_are_refused);
    check::run("scratch remembers nothing", scratch_remembers_nothing);
    check::run("what is no picture", what_is_no_picture);
    check::run("truncated files are refused", truncated_files_are_refused);
    return check::finish();
}
