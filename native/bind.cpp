// The only file that knows Python: checks arguments, releases the GIL, calls.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>

#include "checksum.h"
#include "decode.h"
#include "pool.h"
#include "rewrite.h"
#include "tile_record.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T, class... Shape>
using Array = nb::ndarray<T, nb::numpy, nb::c_contig, nb::device::cpu, Shape...>;
using Objects = nb::typed<nb::sequence, nb::object>;
constexpr std::size_t kLongestSide = 1 << 24;  // far from overflowing an int
using View = std::pair<const std::uint8_t*, std::size_t>;

// Set when the interpreter begins to exit, and by which thread.
std::atomic<bool> exiting{false};
std::thread::id exiting_thread;

// Lets other threads run Python while C++ works. A daemon thread that comes back after the
// interpreter has begun to exit must not ask for the GIL: Python would end it by unwinding through
// C++, which aborts the process. It waits for the end instead.
class ReleasedGil {
  public:
    ReleasedGil() : state_(PyEval_SaveThread()) {}
    ReleasedGil(const ReleasedGil&) = delete;
    ~ReleasedGil() {
        while (exiting && std::this_thread::get_id() != exiting_thread) pause();
        PyEval_RestoreThread(state_);
    }

  private:
    PyThreadState* state_;
};

// Holds buffers of Python objects open while C++ reads them.
class Buffers {
  public:
    Buffers() = default;
    Buffers(const Buffers&) = delete;
    ~Buffers() {
        for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
    }

    View add(nb::handle object) {
        buffers_.emplace_back();
        if (PyObject_GetBuffer(object.ptr(), &buffers_.back(), PyBUF_SIMPLE) != 0) {
            buffers_.pop_back();
            throw nb::python_error();
        }
        const Py_buffer& buffer = buffers_.back();
        return {static_cast<const std::uint8_t*>(buffer.buf), static_cast<std::size_t>(buffer.len)};
    }

  private:
    std::vector<Py_buffer> buffers_;
};

template <class T>
nb::ndarray<T, nb::numpy, nb::ndim<1>> make_array(std::size_t count, T*& data) {
    data = new T[count ? count : 1];
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<T, nb::numpy, nb::ndim<1>>(data, {count}, owner);
}

void same_length(std::size_t got, std::size_t expected, const char* name) {
    if (got != expected) {
        throw nb::value_error((std::string(name) + " has " + std::to_string(got) +
                               " entries, expected " + std::to_string(expected))
                                  .c_str());
    }
}

slip::Filter checked_filter(int filter) {
    if (!slip::is_filter(filter)) {
        throw nb::value_error(("filter is " + std::to_string(filter) +
                               ", expected 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic or 4 box")
                                  .c_str());
    }
    return static_cast<slip::Filter>(filter);
}

slip::PassOrder checked_order(int order) {
    if (!slip::is_pass_order(order)) {
        throw nb::value_error(
            ("pass_order is " + std::to_string(order) + ", expected 0, 1 or 2").c_str());
    }
    return static_cast<slip::PassOrder>(order);
}

slip::Scratch& thread_scratch() {
    thread_local slip::ScratchPtr scratch = slip::make_scratch();
    return *scratch;
}

std::uint32_t crc32c(nb::handle data, std::uint32_t seed) {
    Buffers buffers;
    const View view = buffers.add(data);
    ReleasedGil released;
    return slip::crc32c(view.first, view.second, seed);
}

nb::ndarray<std::uint32_t, nb::numpy, nb::ndim<1>> crc32c_many(
    nb::handle data, Array<const std::uint64_t, nb::ndim<1>> offsets,
    Array<const std::uint64_t, nb::ndim<1>> lengths, int threads) {
    Buffers buffers;
    const View view = buffers.add(data);
    const std::size_t count = offsets.shape(0);
    same_length(lengths.shape(0), count, "lengths");
    for (std::size_t i = 0; i < count; ++i) {
        if (offsets.data()[i] > view.second ||
            lengths.data()[i] > view.second - offsets.data()[i]) {
            throw nb::value_error(
                ("range " + std::to_string(i) + " lies outside the data").c_str());
        }
    }
    std::uint32_t* sums;
    auto result = make_array(count, sums);
    const auto *at = offsets.data(), *length = lengths.data();
    ReleasedGil released;
    slip::parallel_for(count, threads, [&](std::size_t i) {
        sums[i] = slip::crc32c(view.first + at[i], length[i]);
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
            rewritten[i] = slip::rewrite_jpeg(views[i].first, views[i].second, orient);
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
    const slip::Status status = slip::parse_tile_record(view.first, view.second, record);
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
    if (view.second >= 4 && std::memcmp(view.first, "TJP1", 4) == 0) {
        read = read_record(view);
    } else {
        const slip::ReadResult result = slip::read_coefficients(view.first, view.second, read);
        if (result.status != slip::Status::ok) throw nb::value_error(result.message.c_str());
    }
    nb::list components;
    for (int c = 0; c < read.frame.component_count; ++c) {
        const slip::Plane& plane = read.planes[c];
        std::int16_t* values;
        std::uint16_t* quant;
        auto flat = make_array(plane.blocks.size(), values);
        auto table = make_array(std::size_t{64}, quant);
        std::copy(plane.blocks.begin(), plane.blocks.end(), values);
        std::copy(plane.quant.begin(), plane.quant.end(), quant);
        components.append(nb::make_tuple(
            nb::cast(flat).attr("reshape")(plane.height_blocks, plane.width_blocks, 64),
            nb::cast(table)));
    }
    return nb::borrow<nb::typed<nb::list, nb::object>>(components);
}

struct Batch {
    std::vector<View> maps;
    const std::uint32_t* map_ids;
    const std::uint64_t *offsets, *lengths;
    const std::uint8_t* codings;
    const std::uint32_t* checksums;  // or null
    const std::int32_t* boxes;
    const std::uint8_t* flips;
    std::uint8_t* out;
    int height, width;
    slip::Filter filter;
    slip::PassOrder order;
};

slip::Status decode_one(const Batch& batch, std::size_t i) noexcept try {
    const View map = batch.maps[batch.map_ids[i]];
    const std::uint8_t* data = map.first + batch.offsets[i];
    const std::size_t size = batch.lengths[i];
    if (batch.checksums && slip::crc32c(data, size) != batch.checksums[i])
        return slip::Status::checksum;
    const std::int32_t* b = batch.boxes + 4 * i;
    const std::size_t pixels = std::size_t{3} * batch.height * batch.width;
    const slip::Target target{batch.out + i * pixels,
                              batch.width,
                              batch.height,
                              batch.filter,
                              batch.order,
                              (batch.flips[i] & 1) != 0,
                              (batch.flips[i] & 2) != 0};
    return slip::decode_picture({data, size, static_cast<slip::Coding>(batch.codings[i])},
                                {b[0], b[1], b[2], b[3]}, target, thread_scratch());
} catch (const std::bad_alloc&) {
    return slip::Status::memory;
}

nb::ndarray<std::int32_t, nb::numpy, nb::ndim<1>> decode_batch(
    Objects maps, Array<const std::uint32_t, nb::ndim<1>> map_ids,
    Array<const std::uint64_t, nb::ndim<1>> offsets,
    Array<const std::uint64_t, nb::ndim<1>> lengths, Array<const std::uint8_t, nb::ndim<1>> codings,
    std::optional<Array<const std::uint32_t, nb::ndim<1>>> checksums,
    Array<const std::int32_t, nb::shape<-1, 4>> boxes, Array<const std::uint8_t, nb::ndim<1>> flips,
    Array<std::uint8_t, nb::shape<-1, -1, -1, 3>> out, int filter, int pass_order, int threads) {
    const std::size_t count = map_ids.shape(0);
    same_length(offsets.shape(0), count, "offsets");
    same_length(lengths.shape(0), count, "lengths");
    same_length(codings.shape(0), count, "codings");
    if (checksums) same_length(checksums->shape(0), count, "checksums");
    same_length(boxes.shape(0), count, "boxes");
    same_length(flips.shape(0), count, "flips");
    same_length(out.shape(0), count, "out");
    if (count > 0 && (out.shape(1) < 1 || out.shape(2) < 1 || out.shape(1) > kLongestSide ||
                      out.shape(2) > kLongestSide)) {
        throw nb::value_error("out must be 1 to 16777216 pixels high and wide");
    }
    Buffers buffers;
    Batch batch{{},
                map_ids.data(),
                offsets.data(),
                lengths.data(),
                codings.data(),
                checksums ? checksums->data() : nullptr,
                boxes.data(),
                flips.data(),
                out.data(),
                static_cast<int>(out.shape(1)),
                static_cast<int>(out.shape(2)),
                checked_filter(filter),
                checked_order(pass_order)};
    for (nb::handle map : maps) batch.maps.push_back(buffers.add(map));
    for (std::size_t i = 0; i < count; ++i) {
        const bool known = batch.map_ids[i] < batch.maps.size() && batch.codings[i] <= 1;
        const std::size_t map_size = known ? batch.maps[batch.map_ids[i]].second : 0;
        if (!known || batch.offsets[i] > map_size ||
            batch.lengths[i] > map_size - batch.offsets[i]) {
            throw nb::value_error(
                ("sample " + std::to_string(i) + " lies outside its map").c_str());
        }
    }
    std::int32_t* statuses;
    auto result = make_array(count, statuses);
    ReleasedGil released;
    slip::parallel_for(count, threads, [&](std::size_t i) {
        statuses[i] = static_cast<std::int32_t>(decode_one(batch, i));
    });
    return result;
}

void resize(Array<const std::uint8_t, nb::shape<-1, -1, 3>> src,
            Array<std::uint8_t, nb::shape<-1, -1, 3>> out, int filter, int pass_order) {
    for (const std::size_t size : {src.shape(0), src.shape(1), out.shape(0), out.shape(1)}) {
        if (size < 1 || size > kLongestSide)
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
    if (slip::resize_picture(pixels, width, height, target, thread_scratch()) != slip::Status::ok) {
        throw std::bad_alloc();
    }
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() =
        "Slipstream's native core: JPEG tiles, exact resize, checksums. Called by the package, not "
        "by users.";

    nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
        exiting_thread = std::this_thread::get_id();
        exiting = true;
    }));

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
          "codings"_a, "checksums"_a.none(), "boxes"_a, "flips"_a, "out"_a.noconvert(), "filter"_a,
          "pass_order"_a, "threads"_a,
          "Decode, crop, resize and flip pictures into `out`; one status per picture.");
    m.def(
        "status_text",
        [](int code) { return std::string(slip::status_text(static_cast<slip::Status>(code))); },
        "code"_a, "What a status means, in words.");
    m.def("resize", &resize, "src"_a, "out"_a.noconvert(), "filter"_a, "pass_order"_a,
          "Resize RGB pixels as Pillow does.");
}
