// What Python sees of slices.h.
#include <nanobind/stl/array.h>

#include <algorithm>
#include <memory>

#include "bind.h"
#include "cuda/kernels/layout.cuh"
#include "emulate.h"
#include "slices.h"

namespace {

// Holds all that a plan points to.
class PySlices {
  public:
    PySlices(Objects maps, List<std::uint32_t> map_ids, List<std::uint64_t> offsets,
             List<std::uint64_t> lengths, List<std::uint8_t> codings,
             std::optional<List<std::uint32_t>> checksums, Boxes boxes, List<std::uint8_t> flips,
             std::optional<Boxes> resized, std::pair<std::size_t, std::size_t> size, int filter,
             int pass_order, std::size_t first, std::size_t most_bytes, int threads)
        : arrays_(
              nb::make_tuple(map_ids, offsets, lengths, codings, checksums, boxes, flips, resized)),
          payloads_(checked_payloads(buffers_, maps, map_ids, offsets, lengths, checksums)),
          batch_(
              checked_batch(payloads_, codings, boxes, flips, resized, size, filter, pass_order)) {
        if (first > map_ids.shape(0)) throw nb::value_error("first lies behind the last sample");
        ReleasedGil released;
        slices_ =
            std::make_unique<slip::Slices>(batch_, first, map_ids.shape(0), most_bytes, threads);
    }

    std::size_t end() const { return slices_->end(); }
    std::size_t pictures() const { return slices_->pictures(); }

    Made<std::int32_t> statuses() const {
        std::int32_t* statuses;
        auto result = make_array(statuses, slices_->statuses().size());
        for (const slip::Status status : slices_->statuses())
            *statuses++ = static_cast<std::int32_t>(status);
        return result;
    }

    std::array<std::size_t, 6> sizes() const {
        const slip::SliceSizes& s = slices_->sizes();
        return {s.slot, s.planes, s.middle, s.segment_groups, s.pixel_groups, s.table_bytes};
    }

    void write(Array<std::uint8_t, nb::ndim<1>> slot, int threads) {
        check_slot(slot);
        std::uint8_t* data = slot.data();
        ReleasedGil released;
        slices_->write(data, threads);
        written_ = true;
    }

    void emulate(Array<std::uint8_t, nb::ndim<1>> slot,
                 Array<const std::uint8_t, nb::ndim<3>> values,
                 Array<std::uint8_t, nb::ndim<1>> out,
                 Array<std::uint32_t, nb::ndim<1>> verdicts) const {
        check_slot(slot);
        if (!written_) throw nb::value_error("write the slot first");
        const std::size_t bytes = values.shape(2);
        const std::size_t pixels = std::size_t{3} * batch_.width * batch_.height;
        same_length(values.shape(0), 3, "values");
        same_length(values.shape(1), 256, "values of a channel");
        if (bytes != 1 && bytes != 2 && bytes != 4)
            throw nb::value_error("values must have 1, 2 or 4 bytes");
        same_length(out.shape(0), verdicts.shape(0) * pixels * bytes, "out");
        if (verdicts.shape(0) < end()) throw nb::value_error("verdicts has too few entries");
        ReleasedGil released;
        slip::emulate(slot.data(), slices_->sizes(), values.data(), static_cast<int>(bytes),
                      out.data(), verdicts.data());
    }

  private:
    void check_slot(const Array<std::uint8_t, nb::ndim<1>>& slot) const {
        if (slot.shape(0) < slices_->sizes().slot) throw nb::value_error("slot is too small");
        if (reinterpret_cast<std::uintptr_t>(slot.data()) % 16)
            throw nb::value_error("slot is not aligned to 16");
    }

    nb::object arrays_;
    Buffers buffers_;
    slip::Payloads payloads_;
    slip::Batch batch_;
    std::unique_ptr<slip::Slices> slices_;
    bool written_ = false;
};

Made<std::int32_t> statuses_of_verdicts(List<std::uint32_t> verdicts) {
    std::int32_t* statuses;
    auto result = make_array(statuses, verdicts.shape(0));
    std::transform(verdicts.data(), verdicts.data() + verdicts.shape(0), statuses,
                   [](std::uint32_t verdict) {
                       return static_cast<std::int32_t>(slip::status_of_verdict(verdict));
                   });
    return result;
}

}  // namespace

void bind_slices(nb::module_& m) {
    m.attr("SEGMENT_THREADS") = slip::cuda::kSegmentGroup;
    m.attr("PIXEL_THREADS") = slip::cuda::kPixelThreads;
    nb::class_<PySlices>(
        m, "Slices",
        "Compressed tiles of a batch's crops for the GPU: planned when made, then written.")
        .def(nb::init<Objects, List<std::uint32_t>, List<std::uint64_t>, List<std::uint64_t>,
                      List<std::uint8_t>, std::optional<List<std::uint32_t>>, Boxes,
                      List<std::uint8_t>, std::optional<Boxes>, std::pair<std::size_t, std::size_t>,
                      int, int, std::size_t, std::size_t, int>(),
             "maps"_a, "map_ids"_a, "offsets"_a, "lengths"_a, "codings"_a, "checksums"_a.none(),
             "boxes"_a, "flips"_a, "resized"_a.none(), "size"_a, "filter"_a, "pass_order"_a,
             "first"_a, "most_bytes"_a, "threads"_a)
        .def_prop_ro("end", &PySlices::end, "One past the last sample that was planned.")
        .def_prop_ro("pictures", &PySlices::pictures, "How many of them are in the slot.")
        .def_prop_ro("statuses", &PySlices::statuses, nb::rv_policy::move,
                     "One per sample planned; what is not 0 is of no use. Checksums are known "
                     "after writing.")
        .def_prop_ro("sizes", &PySlices::sizes,
                     "Bytes of slot, planes and first pass; groups of two kernels; codes of a "
                     "picture at most.")
        .def("write", &PySlices::write, "slot"_a.noconvert(), "threads"_a, "Fill the slot.")
        .def("emulate", &PySlices::emulate, "slot"_a, "values"_a, "out"_a.noconvert(),
             "verdicts"_a.noconvert(),
             "Run the kernels' own source on the processor, over a slot that was written.");
    m.def("statuses_of_verdicts", &statuses_of_verdicts, "verdicts"_a,
          "What the kernels found, as statuses.");
}
