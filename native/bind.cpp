// The module: checks arguments, releases the GIL, calls. bind_columns.cpp, bind_frames.cpp,
// bind_slices.cpp and bind_update.cpp have the rest.
#include "bind.h"

#include <nanobind/stl/array.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>

#include "areas.h"
#include "checksum.h"
#include "convert.h"
#include "gather.h"
#include "jpeg_header.h"
#include "order.h"
#include "parts.h"
#include "philox.h"
#include "pool.h"
#include "read_file.h"
#include "rewrite.h"
#include "tile_record.h"

namespace {

constexpr int kMostBlocks = 1 << 20;

std::uint32_t crc32c(nb::handle data, std::uint32_t seed) {
    Buffers buffers;
    const View view = buffers.add(data);
    ReleasedGil released;
    return slip::crc32c(view.data(), view.size(), seed);
}

Made<std::uint32_t> crc32c_many(nb::handle data, List<std::uint64_t> offsets,
                                List<std::uint64_t> lengths, int threads) {
    Buffers buffers;
    const View view = buffers.add(data);
    const std::size_t count = offsets.shape(0);
    same_length(lengths.shape(0), count, "lengths");
    for (std::size_t i = 0; i < count; ++i) {
        if (!lies_inside(offsets.data()[i], lengths.data()[i], view)) {
            throw nb::value_error(
                ("range " + std::to_string(i) + " lies outside the data").c_str());
        }
    }
    std::uint32_t* sums;
    auto result = make_array(sums, count);
    const auto *at = offsets.data(), *length = lengths.data();
    ReleasedGil released;
    slip::parallel_for(count, threads, [&](std::size_t i) {
        sums[i] = slip::crc32c(view.data() + at[i], length[i]);
    });
    return result;
}

// What rewrite_jpeg returns, with the record as Python bytes.
struct Result {
    int status;
    std::string message;
    nb::bytes record;
    int width, height, orientation;
    bool oriented;
    std::size_t trailing_bytes;
};

std::vector<Result> rewrite_jpegs(Objects files, bool orient, int threads) {
    Buffers buffers;
    std::vector<View> views;
    for (nb::handle file : files) views.push_back(buffers.add(file));
    std::vector<slip::Rewritten> rewritten(views.size());
    {
        ReleasedGil released;
        slip::parallel_for(views.size(), threads, [&](std::size_t i) {
            rewritten[i] = slip::rewrite_jpeg(views[i].data(), views[i].size(), orient);
        });
    }
    std::vector<Result> results;
    for (slip::Rewritten& r : rewritten) {
        const int status =
            static_cast<int>(slip::is_corrupt(r.status) ? slip::Status::corrupt : r.status);
        results.push_back({status, std::move(r.message),
                           nb::bytes(r.record.data(), r.record.size()), r.width, r.height,
                           r.orientation, r.oriented, r.trailing_bytes});
        r.record = {};
    }
    return results;
}

slip::TileRecord checked_record(View view) {
    slip::TileRecord record;
    const slip::Status status = slip::parse_tile_record(view.data(), view.size(), record);
    if (status != slip::Status::ok) throw nb::value_error(slip::status_text(status));
    return record;
}

slip::Coefficients read_record(View view) {
    slip::Coefficients picture;
    const slip::Status status = slip::decode_tile_record(checked_record(view), picture);
    if (status != slip::Status::ok) throw nb::value_error(slip::status_text(status));
    return picture;
}

nb::bytes export_jpeg(nb::handle record) {
    Buffers buffers;
    const View view = buffers.add(record);
    slip::Bytes file;
    {
        ReleasedGil released;
        file = slip::write_jpeg(read_record(view));
    }
    return nb::bytes(file.data(), file.size());
}

std::pair<int, int> record_size(nb::handle record) {
    Buffers buffers;
    const slip::TileRecord parsed = checked_record(buffers.add(record));
    return {parsed.header.frame.width, parsed.header.frame.height};
}

// [(coefficients [rows, columns, 64], quantization [64]), …], one pair per component.
nb::typed<nb::list, nb::object> coefficients(nb::handle picture) {
    Buffers buffers;
    const View view = buffers.add(picture);
    slip::Coefficients read;
    if (view.size() >= 4 && std::memcmp(view.data(), "TJP1", 4) == 0) {
        read = read_record(view);
    } else {
        const slip::ReadResult result = slip::read_coefficients(view.data(), view.size(), read);
        if (result.status != slip::Status::ok) throw nb::value_error(result.message.c_str());
    }
    nb::list components;
    for (int c = 0; c < read.frame.component_count; ++c) {
        const slip::Plane& plane = read.planes[c];
        std::int16_t* values;
        std::uint16_t* quant;
        auto flat = make_array(values, plane.blocks.size());
        auto table = make_array(quant, 64);
        std::copy(plane.blocks.begin(), plane.blocks.end(), values);
        std::copy(plane.quant.begin(), plane.quant.end(), quant);
        components.append(nb::make_tuple(
            nb::cast(flat).attr("reshape")(plane.height_blocks, plane.width_blocks, 64),
            nb::cast(table)));
    }
    return nb::borrow<nb::typed<nb::list, nb::object>>(components);
}

Made<std::int32_t> decode_batch(Objects maps, List<std::uint32_t> map_ids,
                                List<std::uint64_t> offsets, List<std::uint64_t> lengths,
                                List<std::uint8_t> codings,
                                std::optional<List<std::uint32_t>> checksums, Boxes boxes,
                                List<std::uint8_t> flips, std::optional<Boxes> resized,
                                Array<std::uint8_t, nb::shape<-1, -1, -1, 3>> out, int filter,
                                int pass_order, int threads) {
    const std::size_t count = map_ids.shape(0);
    same_length(out.shape(0), count, "out");
    Buffers buffers;
    const slip::Payloads payloads =
        checked_payloads(buffers, maps, map_ids, offsets, lengths, checksums);
    slip::Batch batch = checked_batch(payloads, codings, boxes, flips, resized,
                                      {out.shape(2), out.shape(1)}, filter, pass_order);
    batch.out = out.data();
    std::int32_t* statuses;
    auto result = make_array(statuses, count);
    ReleasedGil released;
    slip::decode_batch(batch, count, threads, statuses);
    return result;
}

void resize(Array<const std::uint8_t, nb::shape<-1, -1, 3>> src,
            Array<std::uint8_t, nb::shape<-1, -1, 3>> out, int filter, int pass_order) {
    for (const std::size_t size : {src.shape(0), src.shape(1), out.shape(0), out.shape(1)}) {
        if (!is_side(size))
            throw nb::value_error("pictures must be 1 to 16777216 pixels high and wide");
    }
    const slip::Target target{out.data(),
                              static_cast<int>(out.shape(1)),
                              static_cast<int>(out.shape(0)),
                              checked_filter(filter),
                              checked_order(pass_order),
                              false,
                              false};
    const std::uint8_t* pixels = src.data();
    const int width = static_cast<int>(src.shape(1)), height = static_cast<int>(src.shape(0));
    ReleasedGil released;
    if (slip::resize_picture(pixels, width, height, target, slip::thread_scratch()) !=
        slip::Status::ok) {
        throw std::bad_alloc();
    }
}

Made<std::uint32_t, 2> philox(std::uint64_t seed, std::uint64_t epoch, List<std::int64_t> samples,
                              std::uint32_t op, int blocks) {
    if (blocks < 0 || blocks > kMostBlocks) {
        throw nb::value_error(
            ("blocks is " + std::to_string(blocks) + ", expected 0 to 1048576").c_str());
    }
    const std::size_t count = samples.shape(0), width = std::size_t{4} * blocks;
    std::uint32_t* numbers;
    auto result = make_array(numbers, count, width);
    const std::int64_t* sample = samples.data();
    ReleasedGil released;
    const slip::PhiloxKey key = slip::philox_key(seed, epoch, slip::Purpose::samples);
    for (std::size_t i = 0; i < count; ++i)
        slip::philox_sample(key, sample[i], op, blocks, numbers + i * width);
    return result;
}

bool choose_areas(Array<const std::uint32_t, nb::ndim<2>> words,
                  Array<const double, nb::shape<-1, slip::kAreaTries>> aspects,
                  Array<const std::int64_t, nb::shape<2, -1>> sizes, std::array<double, 2> scale,
                  std::array<double, 2> ratio, Array<std::int64_t, nb::shape<4, -1>> boxes) {
    const std::size_t count = words.shape(0);
    if (words.shape(1) < slip::kAreaWords) throw nb::value_error("too few words");
    same_length(aspects.shape(0), count, "aspects");
    same_length(sizes.shape(1), count, "sizes");
    same_length(boxes.shape(1), count, "boxes");
    return slip::choose_areas(words.data(), words.shape(1), aspects.data(), sizes.data(), count,
                              {scale[0], scale[1], ratio[0], ratio[1]}, boxes.data());
}

void make_order(slip::Order* self, std::int64_t count, std::uint64_t seed, std::uint64_t epoch) {
    if (count < 0 || count > slip::Order::kMostOrdered)
        throw nb::value_error(
            ("count is " + std::to_string(count) + ", expected 0 to 2^62").c_str());
    new (self) slip::Order(count, seed, epoch);
}

Made<std::int64_t> order_at(const slip::Order& self, List<std::int64_t> positions) {
    const std::size_t size = positions.shape(0);
    const std::int64_t* position = positions.data();
    for (std::size_t i = 0; i < size; ++i) {
        if (position[i] < 0 || position[i] >= self.count()) {
            throw nb::value_error(("position " + std::to_string(position[i]) +
                                   " lies outside an order of " + std::to_string(self.count()))
                                      .c_str());
        }
    }
    std::int64_t* samples;
    auto result = make_array(samples, size);
    ReleasedGil released;
    self.at(position, size, samples);
    return result;
}

Made<std::int32_t> gather(Objects maps, List<std::uint32_t> map_ids, List<std::uint64_t> offsets,
                          List<std::uint64_t> lengths, std::optional<List<std::uint32_t>> checksums,
                          Array<std::uint8_t, nb::ndim<2>> out, int threads) {
    const std::size_t count = map_ids.shape(0), size = out.shape(1);
    Buffers buffers;
    const slip::Payloads payloads =
        checked_payloads(buffers, maps, map_ids, offsets, lengths, checksums);
    same_length(out.shape(0), count, "out");
    for (std::size_t i = 0; i < count; ++i) {
        if (payloads[i].size() != size) {
            throw nb::value_error(("sample " + std::to_string(i) + " has " +
                                   std::to_string(payloads[i].size()) +
                                   " bytes, out has room for " + std::to_string(size))
                                      .c_str());
        }
    }
    std::int32_t* statuses;
    auto result = make_array(statuses, count);
    std::uint8_t* rows = out.data();
    ReleasedGil released;
    slip::parallel_parts(count, size, threads, [&](std::size_t first, std::size_t end) {
        for (std::size_t i = first; i < end; ++i) {
            statuses[i] = static_cast<std::int32_t>(slip::copy_payload(
                payloads[i].data(), size, payloads.checksum(i), rows + i * size));
        }
    });
    return result;
}

void convert(Array<const std::uint8_t, nb::shape<-1, -1, -1, 3>> src, nb::ndarray<> out,
             std::optional<Array<const float, nb::shape<3, 256>>> table, int threads) {
    const std::size_t images = src.shape(0), height = src.shape(1), width = src.shape(2);
    const nb::dlpack::dtype wanted = table ? nb::dtype<float>() : nb::dtype<std::uint8_t>();
    if (out.dtype() != wanted)
        throw nb::type_error(table ? "out must be float32 with a table"
                                   : "out must be uint8 without a table");
    const std::size_t shape[] = {images, 3, height, width};
    bool fits = out.ndim() == 4 && out.device_type() == nb::device::cpu::value;
    for (std::size_t d = 0; fits && d < 4; ++d) fits = out.shape(d) == shape[d];
    std::int64_t stride = 1;
    for (std::size_t d = 4; fits && out.size() > 0 && d-- > 0;
         stride *= static_cast<std::int64_t>(shape[d])) {
        fits = out.stride(d) == stride || shape[d] == 1;
    }
    if (!fits) throw nb::value_error("out must be contiguous [N, 3, H, W] for src [N, H, W, 3]");
    const std::uint8_t* pixels = src.data();
    const std::size_t plane = height * width;
    void* planes = out.data();
    const float* tables = table ? table->data() : nullptr;
    ReleasedGil released;
    slip::parallel_pixels(
        images, plane, threads, [&](std::size_t i, std::size_t at, std::size_t count) {
            const std::uint8_t* from = pixels + 3 * (i * plane + at);
            const std::size_t to = 3 * i * plane + at;
            if (tables) {
                slip::look_up_pixels(from, count, tables, static_cast<float*>(planes) + to, plane);
            } else {
                slip::separate_pixels(from, count, static_cast<std::uint8_t*>(planes) + to, plane);
            }
        });
}

using Bytes = Made<std::uint8_t>;

Bytes as_array(slip::FileBytes& file) {
    std::uint8_t* data = file.data.release();
    if (!data) data = static_cast<std::uint8_t*>(std::malloc(1));
    nb::capsule owner(data, [](void* p) noexcept { std::free(p); });
    return Bytes(data, {file.size}, owner);
}

std::tuple<nb::typed<nb::list, Bytes>, Made<std::int32_t, 2>, Made<std::int32_t>> read_files(
    nb::typed<nb::list, nb::bytes> paths, int threads) {
    std::vector<std::string> names;
    for (nb::handle path : paths) {
        if (!PyBytes_Check(path.ptr())) throw nb::type_error("paths must be bytes: os.fsencode");
        const auto bytes = nb::borrow<nb::bytes>(path);
        names.emplace_back(bytes.c_str(), bytes.size());
    }
    const std::size_t count = names.size();
    std::vector<slip::FileBytes> files(count);
    std::int32_t *sizes, *errors;
    auto size_array = make_array(sizes, count, std::size_t{2});
    auto error_array = make_array(errors, count);
    {
        ReleasedGil released;
        slip::parallel_for(count, threads, [&](std::size_t i) {
            // A zero byte would cut the name short and open another file.
            if (names[i].find('\0') == std::string::npos) {
                files[i] = slip::read_file(names[i].c_str());
            } else {
                files[i].error = EINVAL;
            }
            slip::PictureSize size;
            const bool known = slip::find_jpeg_size(files[i].data.get(), files[i].size, size);
            sizes[2 * i] = known ? size.width : 0;
            sizes[2 * i + 1] = known ? size.height : 0;
            errors[i] = files[i].error;
        });
    }
    nb::list arrays;
    for (slip::FileBytes& file : files) arrays.append(as_array(file));
    return {nb::borrow<nb::typed<nb::list, Bytes>>(arrays), size_array, error_array};
}

}  // namespace

NB_MODULE(_native, m) {
    // A thread that still makes batches at the interpreter's exit holds objects; that is no leak.
    nb::set_leak_warnings(false);
    m.doc() =
        "Slipstream's native core: JPEG tiles, exact resize, checksums. Called by the package, not "
        "by users.";

    nb::module_::import_("atexit").attr("register")(nb::cpp_function(ReleasedGil::stop_at_exit));

    m.attr("STATUS_OK") = static_cast<int>(slip::Status::ok);
    m.attr("STATUS_UNSUPPORTED") = static_cast<int>(slip::Status::unsupported);
    m.attr("STATUS_CORRUPT") = static_cast<int>(slip::Status::corrupt);
    m.attr("STATUS_CHECKSUM") = static_cast<int>(slip::Status::checksum);
    m.attr("STATUS_BOX") = static_cast<int>(slip::Status::box);
    m.attr("STATUS_MEMORY") = static_cast<int>(slip::Status::memory);

    nb::class_<Result>(m, "Rewritten", "What became of one JPEG file.")
        .def_ro("status", &Result::status)
        .def_ro("message", &Result::message)
        .def_ro("record", &Result::record)
        .def_ro("width", &Result::width)
        .def_ro("height", &Result::height)
        .def_ro("orientation", &Result::orientation)
        .def_ro("oriented", &Result::oriented)
        .def_ro("trailing_bytes", &Result::trailing_bytes);

    nb::class_<slip::Order>(m, "Order", "A shuffled order of `count` samples.")
        .def("__init__", &make_order, "count"_a, "seed"_a, "epoch"_a)
        .def("at", &order_at, "positions"_a, "Which samples stand at these places of the order.");

    m.def("philox", &philox, "seed"_a, "epoch"_a, "samples"_a, "op"_a, "blocks"_a,
          "Random numbers of an operation, a function of all arguments: 4 * blocks per sample.");
    m.def("crc32c", &crc32c, "data"_a, "seed"_a = 0,
          "CRC-32C of a buffer; `seed` continues an earlier one.");
    m.def("crc32c_many", &crc32c_many, "data"_a, "offsets"_a, "lengths"_a, "threads"_a,
          "CRC-32C of many ranges of one buffer.");
    m.def("rewrite_jpegs", &rewrite_jpegs, "files"_a, "orient"_a, "threads"_a,
          "Rewrite JPEG files losslessly into tile records.");
    m.def("export_jpeg", &export_jpeg, "record"_a,
          "Turn a tile record into an ordinary JPEG file.");
    m.def("record_size", &record_size, "record"_a,
          "Check a tile record's structure and return (width, height).");
    m.def("coefficients", &coefficients, "picture"_a,
          "Quantized DCT coefficients and quantization tables of a JPEG file or a tile record.");
    m.def("decode_batch", &decode_batch, "maps"_a, "map_ids"_a, "offsets"_a, "lengths"_a,
          "codings"_a, "checksums"_a.none(), "boxes"_a, "flips"_a, "resized"_a.none(),
          "out"_a.noconvert(), "filter"_a, "pass_order"_a, "threads"_a,
          "Decode, crop, resize and flip pictures into `out`; one status per picture.");
    m.def("choose_areas", &choose_areas, "words"_a, "aspects"_a, "sizes"_a, "scale"_a, "ratio"_a,
          "boxes"_a.noconvert(),
          "The crops of RandomResizedCrop, (x, y, width, height) each; whether all have a pixel.");
    m.def("gather", &gather, "maps"_a, "map_ids"_a, "offsets"_a, "lengths"_a, "checksums"_a.none(),
          "out"_a.noconvert(), "threads"_a,
          "Copy payloads of equal length into the rows of `out`; one status per payload.");
    m.def("convert", &convert, "src"_a, "out"_a.noconvert(), "table"_a.none(), "threads"_a,
          nb::sig("def convert(src: NDArray[numpy.uint8], out: NDArray[numpy.uint8] | "
                  "NDArray[numpy.float32], table: NDArray[numpy.float32] | None, threads: int) -> "
                  "None"),
          "Pixels [N, H, W, 3] into planes [N, 3, H, W], or into their entries in table[3, 256].");
    m.def("read_files", &read_files, "paths"_a, "threads"_a,
          "Read whole files: their bytes, (width, height) where they are JPEGs, and errnos.");
    m.def(
        "status_text",
        [](int code) { return std::string(slip::status_text(static_cast<slip::Status>(code))); },
        "code"_a, "What a status means, in words.");
    m.def("resize", &resize, "src"_a, "out"_a.noconvert(), "filter"_a, "pass_order"_a,
          "Resize RGB pixels as Pillow does.");
    bind_columns(m);
    bind_frames(m);
    bind_slices(m);
    bind_update(m);
}
