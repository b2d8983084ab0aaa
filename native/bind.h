// What the files that know Python share: arrays, the GIL, checks of arguments.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "batch.h"

namespace nb = nanobind;
using namespace nb::literals;
using slip::View;

template <class T, class... Shape>
using Array = nb::ndarray<T, nb::numpy, nb::c_contig, nb::device::cpu, Shape...>;
template <class T>
using List = Array<const T, nb::ndim<1>>;
using Objects = nb::typed<nb::sequence, nb::object>;
using Boxes = Array<const std::int32_t, nb::shape<-1, 4>>;

// Lets other threads run Python while C++ works. A daemon thread that comes back after the
// interpreter has begun to exit must not ask for the GIL: Python would end it by unwinding through
// C++, which aborts the process. It waits for the end instead.
class ReleasedGil {
  public:
    ReleasedGil() : state_(PyEval_SaveThread()) {}
    ReleasedGil(const ReleasedGil&) = delete;
    ~ReleasedGil();

    // To be called when the interpreter begins to exit, by the thread that ends it.
    static void stop_at_exit();

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

    View add(nb::handle object, int flags = PyBUF_SIMPLE) {
        buffers_.emplace_back();
        if (PyObject_GetBuffer(object.ptr(), &buffers_.back(), flags) != 0) {
            buffers_.pop_back();
            throw nb::python_error();
        }
        const Py_buffer& buffer = buffers_.back();
        return {static_cast<const std::uint8_t*>(buffer.buf), static_cast<std::size_t>(buffer.len)};
    }

    // All that another one holds.
    void take(Buffers& other) {
        buffers_.insert(buffers_.end(), other.buffers_.begin(), other.buffers_.end());
        other.buffers_.clear();
    }

  private:
    std::vector<Py_buffer> buffers_;
};

template <class T, int dimensions = 1>
using Made = nb::ndarray<T, nb::numpy, nb::ndim<dimensions>>;

// Not filled. `data` points to its elements.
template <class T, class... Sizes>
Made<T, 1 + sizeof...(Sizes)> make_array(T*& data, std::size_t count, Sizes... more) {
    const std::size_t total = (count * ... * more);
    data = new T[total ? total : 1];
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return Made<T, 1 + sizeof...(Sizes)>(data, {count, more...}, owner);
}

// These raise ValueError.
void same_length(std::size_t got, std::size_t expected, const char* name);
bool lies_inside(std::uint64_t offset, std::uint64_t length, View data);
bool is_side(std::size_t pixels);
slip::Filter checked_filter(int filter);
slip::PassOrder checked_order(int order);

// Points to the arguments and holds the maps' buffers open.
slip::Payloads checked_payloads(Buffers& buffers, Objects maps, const List<std::uint32_t>& map_ids,
                                const List<std::uint64_t>& offsets,
                                const List<std::uint64_t>& lengths,
                                const std::optional<List<std::uint32_t>>& checksums);

// Points to the arguments; `size` is (width, height). `out` is null.
slip::Batch checked_batch(const slip::Payloads& payloads, const List<std::uint8_t>& codings,
                          const Boxes& boxes, const List<std::uint8_t>& flips,
                          const std::optional<Boxes>& resized,
                          std::pair<std::size_t, std::size_t> size, int filter, int pass_order);

void bind_columns(nb::module_& m);
void bind_frames(nb::module_& m);
void bind_slices(nb::module_& m);
void bind_update(nb::module_& m);
