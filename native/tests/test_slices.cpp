// The GPU's source, run by the processor, against the engine: same pixels, same verdicts, and
// nothing outside its buffers, whatever the bytes.
#include "slices.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "coefficient_maker.h"
#include "emulate.h"
#include "engine.h"
#include "mutate.h"
#include "rewrite.h"
#include "trials.h"

namespace {

using namespace testing;
using slip::Box;
using slip::Coding;
using slip::Status;

constexpr int kMutations = 12'000;
constexpr std::size_t kNoLimit = std::size_t{1} << 40;

// Crops of records, as the loader hands them over.
struct Crops {
    std::vector<Bytes> records;
    std::vector<std::int32_t> boxes, resized;
    std::vector<std::uint8_t> flips;
    std::vector<Shape> shapes;
    int width, height;
    slip::Filter filter;
    slip::PassOrder order;

    std::size_t count() const { return records.size(); }
    Box box(std::size_t i) const {
        return {boxes[4 * i], boxes[4 * i + 1], boxes[4 * i + 2], boxes[4 * i + 3]};
    }

    // All crops of a batch share size, filter and order with the first.
    void add(const Bytes& record, const Box& box, Shape shape) {
        if (records.empty()) {
            width = shape.width;
            height = shape.height;
            filter = shape.filter;
            order = shape.order;
        }
        records.push_back(record);
        boxes.insert(boxes.end(), {box.x, box.y, box.width, box.height});
        const slip::Window window =
            shape.window.value_or(slip::Window{shape.width, shape.height, 0, 0});
        resized.insert(resized.end(),
                       {window.full_width, window.full_height, window.left, window.top});
        flips.push_back(static_cast<std::uint8_t>(shape.mirror | shape.upside_down << 1));
        shapes.push_back(shape);
    }
};

struct Emulated {
    std::vector<Status> statuses;
    std::vector<Bytes> pixels;
    int slots = 0;
};

Bytes bytes_themselves() {
    Bytes values(3 * 256);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i);
    return values;
}

// `values` have `bytes` bytes each. Every buffer is exactly as large as it must be.
Emulated emulate_all(const Crops& crops, std::size_t most_bytes, const Bytes& values, int bytes) {
    std::vector<slip::View> maps(crops.records.begin(), crops.records.end());
    std::vector<std::uint32_t> ids(crops.count());
    std::iota(ids.begin(), ids.end(), 0u);
    std::vector<std::uint64_t> offsets(crops.count()), lengths;
    for (const Bytes& record : crops.records) lengths.push_back(record.size());
    const std::vector<std::uint8_t> codings(crops.count(), 1);
    const slip::Payloads payloads{crops.count(),  maps,           ids.data(),
                                  offsets.data(), lengths.data(), nullptr};
    const slip::Batch batch{
        payloads, codings.data(), crops.boxes.data(), crops.flips.data(), crops.resized.data(),
        nullptr,  crops.height,   crops.width,        crops.filter,       crops.order};
    const std::size_t step = std::size_t{3} * crops.width * crops.height * bytes;
    Bytes out(crops.count() * step);
    std::vector<std::uint32_t> verdicts(crops.count(), ~0u);
    Emulated result;
    for (std::size_t first = 0; first < crops.count();) {
        slip::Slices slices(batch, first, crops.count(), most_bytes, 2);
        const auto slot = std::make_unique_for_overwrite<std::uint8_t[]>(slices.sizes().slot);
        slices.write(slot.get(), 2);
        slip::emulate(slot.get(), slices.sizes(), values.data(), bytes, out.data(),
                      verdicts.data());
        result.statuses.insert(result.statuses.end(), slices.statuses().begin(),
                               slices.statuses().end());
        CHECK(slices.end() > first);
        first = slices.end();
        ++result.slots;
    }
    for (std::size_t i = 0; i < crops.count(); ++i) {
        if (result.statuses[i] == Status::ok)
            result.statuses[i] = slip::status_of_verdict(verdicts[i]);
        const auto begin = out.begin() + static_cast<std::ptrdiff_t>(i * step);
        result.pixels.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(step));
    }
    return result;
}

void check_same(const Crops& crops, std::size_t most_bytes = kNoLimit) {
    const slip::ScratchPtr scratch = slip::make_scratch();
    const Emulated got = emulate_all(crops, most_bytes, bytes_themselves(), 1);
    const Engine engine = engines().front();
    for (std::size_t i = 0; i < crops.count(); ++i) {
        check::looking_at("crop " + std::to_string(i) + ", " + describe(crops.box(i)));
        const Decoded expected = decode(engine, crops.records[i], Coding::tiles, crops.box(i),
                                        crops.shapes[i], *scratch);
        CHECK((got.statuses[i] == Status::ok) == (expected.status == Status::ok));
        if (expected.status == Status::ok) CHECK(got.pixels[i] == expected.image.pixels);
    }
}

Bytes record_of(const JpegOptions& options, Random& random) {
    const Bytes file = make_jpeg(options, random);
    slip::Rewritten rewritten = slip::rewrite_jpeg(file.data(), file.size(), false);
    CHECK(rewritten.status == Status::ok);
    return std::move(rewritten.record);
}

// One of the batch's shape, with flips and a window of its own.
Shape shape_like(const Shape& first, Random& random) {
    Shape shape = first;
    shape.mirror = random.chance(2);
    shape.upside_down = random.chance(3);
    shape.window.reset();
    if (random.chance(2)) shape.window = random_window(random, shape, 60);
    return shape;
}

void batches_of_every_kind() {
    Random random(90);
    for (int round = 0; round < 40; ++round) {
        const Shape first = random_shape(random, round % 4 ? 40 : 90);
        Crops crops;
        for (const Sampling& sampling : kSamplings) {
            JpegOptions options = random_options(random, round % 5 ? 120 : 300);
            options.sampling = sampling;
            const Bytes record = record_of(options, random);
            crops.add(record, random_box(random, options.width, options.height),
                      shape_like(first, random));
        }
        check_same(crops);
    }
}

void every_filter_and_order() {
    Random random(91);
    for (int filter = 0; filter <= 4; ++filter) {
        for (int order = 0; order <= 2; ++order) {
            Crops crops;
            const Shape first{33, 17, static_cast<slip::Filter>(filter),
                              static_cast<slip::PassOrder>(order)};
            for (const auto& [width, height] :
                 {std::pair{9, 7}, {400, 30}, {20, 700}, {200, 150}, {33, 17}, {1, 160}}) {
                JpegOptions options;
                options.sampling = kSamplings[3];
                options.width = width;
                options.height = height;
                crops.add(record_of(options, random), {0, 0, width, height},
                          shape_like(first, random));
            }
            check_same(crops);
        }
    }
}

void every_small_size() {
    Random random(92);
    for (int width = 1; width <= 18; ++width) {
        Crops crops;
        for (int height = 1; height <= 18; ++height) {
            JpegOptions options;
            options.sampling = kSamplings[(5 * width + height) % std::size(kSamplings)];
            options.width = width;
            options.height = height;
            crops.add(record_of(options, random), {0, 0, width, height}, {8, 8});
        }
        check_same(crops);
    }
}

void large_pictures_and_long_segments() {
    Random random(93);
    Crops crops;
    for (const int width : {900, 2100}) {
        JpegOptions options;
        options.sampling = kSamplings[3];
        options.width = width;
        options.height = 700;
        options.quality = 98;
        const Bytes record = record_of(options, random);
        crops.add(record, {0, 0, width, 700}, {64, 48});
        crops.add(record, random_box(random, width, 700), {64, 48});
    }
    check_same(crops);
}

void batches_cut_at_a_limit() {
    Random random(94);
    Crops crops;
    for (int i = 0; i < 20; ++i) {
        JpegOptions options = random_options(random, 100);
        crops.add(record_of(options, random), {0, 0, options.width, options.height}, {16, 16});
    }
    check_same(crops, 1);
    check_same(crops, 200'000);
    CHECK(emulate_all(crops, 1, bytes_themselves(), 1).slots == 20);
    const int slots = emulate_all(crops, 200'000, bytes_themselves(), 1).slots;
    CHECK(slots > 1 && slots < 20);
}

void other_kinds_of_values() {
    Random random(95);
    JpegOptions options;
    options.width = 50;
    options.height = 40;
    Crops crops;
    crops.add(record_of(options, random), {3, 4, 40, 30}, {20, 20});
    const Bytes plain = emulate_all(crops, kNoLimit, bytes_themselves(), 1).pixels[0];
    for (const int bytes : {2, 4}) {
        Bytes values(static_cast<std::size_t>(3 * 256 * bytes));
        for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(random.next());
        const Bytes got = emulate_all(crops, kNoLimit, values, bytes).pixels[0];
        for (std::size_t i = 0; i < plain.size(); ++i) {
            const std::uint8_t* expected = values.data() + (256 * (i % 3) + plain[i]) * bytes;
            CHECK(std::equal(expected, expected + bytes, got.data() + i * bytes));
        }
    }
}

// The segments with marker `kind` (0xC4 tables, 0xDA scan) of a record's header: where they start.
std::vector<std::size_t> markers_of(const Bytes& record, std::uint8_t kind) {
    const std::size_t end = slip::kTileRecordFixedBytes + (record[4] | record[5] << 8);
    std::vector<std::size_t> found;
    for (std::size_t at = slip::kTileRecordFixedBytes + 2; at + 4 <= end;
         at += 2 + (record[at + 2] << 8 | record[at + 3])) {
        if (record[at + 1] == kind) found.push_back(at);
    }
    return found;
}

// Its third component gets tables of its own: those of the second with one code more, which no
// block uses.
Bytes with_six_codes(const Bytes& record) {
    Bytes tables;
    for (const std::size_t at : markers_of(record, 0xC4)) {
        if ((record[at + 4] & 15) != 1) continue;
        const auto begin = record.begin() + static_cast<std::ptrdiff_t>(at);
        Bytes own(begin, begin + 2 + (record[at + 2] << 8 | record[at + 3]));
        own[3] = static_cast<std::uint8_t>(own[3] + 1);
        own[4] = static_cast<std::uint8_t>(own[4] + 1);
        own[20] = static_cast<std::uint8_t>(own[20] + 1);
        own.push_back(0);
        tables.insert(tables.end(), own.begin(), own.end());
    }
    Bytes six = record;
    const std::size_t scan = markers_of(record, 0xDA).at(0);
    six[scan + 10] = 0x22;
    six.insert(six.begin() + static_cast<std::ptrdiff_t>(scan), tables.begin(), tables.end());
    const std::size_t header_bytes = (record[4] | record[5] << 8) + tables.size();
    six[4] = static_cast<std::uint8_t>(header_bytes);
    six[5] = static_cast<std::uint8_t>(header_bytes >> 8);
    return six;
}

// As many codes as a picture can have, between pictures that have fewer.
void six_codes() {
    Random random(97);
    Crops crops;
    for (const Sampling& sampling : kSamplings) {
        JpegOptions options = random_options(random, 100);
        options.sampling = sampling;
        const Bytes record = record_of(options, random);
        const Box box = random_box(random, options.width, options.height);
        crops.add(record, box, {24, 24});
        if (sampling.components == 1) continue;
        const Bytes six = with_six_codes(record);
        CHECK(same_coefficients(coefficients_of_record(record), coefficients_of_record(six)));
        crops.add(six, box, {24, 24});
    }
    check_same(crops);
    const auto record = std::make_unique<slip::TileRecord>();
    const Bytes& last = crops.records.back();
    CHECK(slip::parse_tile_record(last.data(), last.size(), *record) == Status::ok);
    for (int c = 0; c < 3; ++c) {
        CHECK(record->header.frame.components[c].dc == c);
        CHECK(record->header.frame.components[c].ac == c);
    }
}

// Whether all builds agree on the pixels: damaged coefficients overflow in different ways.
bool is_tame(const Bytes& bytes) {
    const auto record = std::make_unique<slip::TileRecord>();
    slip::Coefficients picture;
    return slip::parse_tile_record(bytes.data(), bytes.size(), *record) == Status::ok &&
           slip::decode_tile_record(*record, picture) == Status::ok && same_everywhere(picture);
}

// One to four damages of the compressed bits alone: header, tables and lengths stay sound, so only
// whoever decodes a segment can find out.
Bytes damage_segments(const Bytes& sound, const Bytes& other, Random& random) {
    Bytes bytes = sound;
    const auto record = std::make_unique<slip::TileRecord>();
    CHECK(slip::parse_tile_record(bytes.data(), bytes.size(), *record) == Status::ok);
    const std::size_t first = static_cast<std::size_t>(record->segments - bytes.data());
    const std::size_t count = static_cast<std::size_t>(record->markers - record->segments);
    for (int left = random.chance(3) ? random.between(2, 4) : 1; left > 0; --left) {
        const std::size_t place = static_cast<std::size_t>(random.next() % count);
        const std::size_t most = std::min<std::size_t>(count - place, random.between(1, 40));
        std::uint8_t* at = bytes.data() + first + place;
        switch (random.between(0, 3)) {
            case 0: *at ^= static_cast<std::uint8_t>(1 << random.between(0, 7)); break;
            case 1: *at = random.byte(); break;
            case 2: std::fill_n(at, most, random.chance(2) ? 0xFF : 0x00); break;
            default: std::copy_n(other.data(), std::min(most, other.size()), at); break;
        }
    }
    return bytes;
}

struct Outcomes {
    int fine = 0, refused = 0, found = 0;

    void count(Status status) {
        const bool by_kernels = status == Status::huffman_code ||
                                status == Status::segment_overrun ||
                                status == Status::segment_leftover;
        ++(status == Status::ok ? fine : by_kernels ? found : refused);
    }
    void print(const char* name) const {
        std::printf("     %s: %d fine, %d refused before, %d found by the kernels\n", name, fine,
                    refused, found);
    }
};

// The engine and the kernels say the same of these bytes: whether they are sound, and the pixels.
Status check_damaged(const Bytes& bytes, Random& random, slip::Scratch& scratch) {
    const auto record = std::make_unique<slip::TileRecord>();
    int width = 30, height = 30;
    if (slip::parse_tile_record(bytes.data(), bytes.size(), *record) == Status::ok) {
        width = record->header.frame.width;
        height = record->header.frame.height;
    }
    Crops crops;
    crops.add(bytes, any_box(random, width, height), random_windowed_shape(random, 40));
    const Emulated got = emulate_all(crops, kNoLimit, bytes_themselves(), 1);
    const Decoded expected =
        decode(engines().front(), bytes, Coding::tiles, crops.box(0), crops.shapes[0], scratch);
    CHECK(is_status(got.statuses[0]));
    CHECK((got.statuses[0] == Status::ok) == (expected.status == Status::ok));
    if (expected.status == Status::ok && is_tame(bytes))
        CHECK(got.pixels[0] == expected.image.pixels);
    return got.statuses[0];
}

void damaged_records() {
    Random random(96);
    std::vector<Bytes> sound;
    for (int i = 0; i < 60; ++i) {
        JpegOptions options = random_options(random, i % 8 ? 48 : 110);
        options.sampling = kSamplings[i % std::size(kSamplings)];
        sound.push_back(record_of(options, random));
    }
    const slip::ScratchPtr scratch = slip::make_scratch();
    Outcomes anywhere, in_segments;
    for (int i = 0; i < kMutations; ++i) {
        Random own(0x3000'0000u + static_cast<std::uint64_t>(i));
        const Bytes& other = sound[static_cast<std::size_t>(own.next() % sound.size())];
        const Bytes& source = sound[static_cast<std::size_t>(i / 2) % sound.size()];
        check::looking_at("mutation " + std::to_string(i));
        if (i % 2) {
            anywhere.count(check_damaged(mutate(source, other, own), own, *scratch));
            continue;
        }
        const Status status = check_damaged(damage_segments(source, other, own), own, *scratch);
        in_segments.count(status);
        // Nothing but a bad box can be seen from outside.
        CHECK(status == Status::ok || status == Status::box || status == Status::huffman_code ||
              status == Status::segment_overrun || status == Status::segment_leftover);
    }
    anywhere.print("damage anywhere");
    in_segments.print("damage in segments");
    constexpr int half = kMutations / 2;
    CHECK(anywhere.fine > half / 50 && anywhere.refused > half / 10 && anywhere.found > half / 20);
    CHECK(in_segments.fine > half / 20 && in_segments.found > half / 3);
    CHECK(in_segments.refused < half / 5);
}

}  // namespace

int main() {
    check::run("batches of every kind", batches_of_every_kind);
    check::run("every filter and order", every_filter_and_order);
    check::run("every small size", every_small_size);
    check::run("large pictures and long segments", large_pictures_and_long_segments);
    check::run("batches cut at a limit", batches_cut_at_a_limit);
    check::run("other kinds of values", other_kinds_of_values);
    check::run("six codes", six_codes);
    check::run("damaged records", damaged_records);
    return check::finish();
}
