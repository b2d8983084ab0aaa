// What Python sees of shard_columns.h.
#include <algorithm>
#include <optional>
#include <string>

#include "bind.h"
#include "shard_columns.h"

namespace {

// So many samples take less time than getting the GIL back may.
constexpr std::size_t kFewSamples = 8192;

std::vector<std::int64_t> checked_firsts(const List<std::int64_t>& firsts) {
    const std::int64_t *first = firsts.data(), *end = first + firsts.shape(0);
    if (first == end || *first != 0 || !std::is_sorted(first, end))
        throw nb::value_error("firsts must start at 0 and never fall");
    return {first, end};
}

// Holds open what columns lie on, and a shard's owner for whoever uses it.
class PyShardColumns {
  public:
    PyShardColumns(List<std::int64_t> firsts, std::vector<std::size_t> item_bytes)
        : columns_(checked_firsts(firsts), std::move(item_bytes)), owners_(columns_.shards()) {}

    void open(std::size_t shard, nb::object owner, Objects columns) {
        if (shard >= columns_.shards()) throw nb::index_error("no such shard");
        if (columns_.is_open(shard)) return;
        std::vector<const std::uint8_t*> data;
        Buffers buffers;
        for (nb::handle column : columns) {
            const View view = buffers.add(column);
            if (data.size() == columns_.columns()) throw nb::value_error("too many columns");
            same_length(view.size(), columns_.bytes(shard, data.size()), "bytes of a column");
            data.push_back(view.data());
        }
        same_length(data.size(), columns_.columns(), "columns");
        buffers_.take(buffers);
        owners_[shard] = std::move(owner);
        columns_.open(shard, data);
    }

    // Shards that must be opened first, else owners of those used; then `ids` and `out` are filled.
    std::pair<std::vector<std::uint32_t>, nb::typed<nb::list, nb::any>> gather(
        List<std::int64_t> samples, Array<std::uint32_t, nb::ndim<1>> ids, Objects out) const {
        const std::size_t count = samples.shape(0);
        same_length(ids.shape(0), count, "ids");
        check_samples(samples.data(), count);
        Buffers buffers;
        std::vector<std::uint8_t*> columns;
        for (nb::handle column : out) {
            const View view = buffers.add(column, PyBUF_WRITABLE);
            if (columns.size() == columns_.columns()) throw nb::value_error("too many columns");
            same_length(view.size(), count * columns_.item_bytes(columns.size()), "bytes of out");
            columns.push_back(const_cast<std::uint8_t*>(view.data()));
        }
        same_length(columns.size(), columns_.columns(), "columns");

        std::vector<std::uint32_t> used, closed;
        {
            std::optional<ReleasedGil> released;
            if (count > kFewSamples) released.emplace();
            columns_.find(samples.data(), count, ids.data(), used);
            std::copy_if(used.begin(), used.end(), std::back_inserter(closed),
                         [this](std::uint32_t shard) { return !columns_.is_open(shard); });
            if (closed.empty())
                columns_.gather(samples.data(), count, ids.data(), used, columns.data());
        }
        nb::list owners;
        if (closed.empty())
            for (const std::uint32_t shard : used) owners.append(owners_[shard]);
        return {std::move(closed), nb::borrow<nb::typed<nb::list, nb::any>>(owners)};
    }

  private:
    void check_samples(const std::int64_t* samples, std::size_t count) const {
        if (count == 0) return;
        const auto [least, most] = std::minmax_element(samples, samples + count);
        if (*least < 0 || *most >= columns_.samples()) {
            throw nb::index_error(("samples " + std::to_string(*least) + " to " +
                                   std::to_string(*most) + " of a dataset of " +
                                   std::to_string(columns_.samples()))
                                      .c_str());
        }
    }

    slip::ShardColumns columns_;
    Buffers buffers_;
    std::vector<nb::object> owners_;
};

}  // namespace

void bind_columns(nb::module_& m) {
    nb::class_<PyShardColumns>(
        m, "ShardColumns",
        "Index columns of shards, gathered for samples wherever they lie. Shard `s` has samples "
        "`firsts[s]` to `firsts[s + 1]`.")
        .def(nb::init<List<std::int64_t>, std::vector<std::size_t>>(), "firsts"_a, "item_bytes"_a)
        .def("open", &PyShardColumns::open, "shard"_a, "owner"_a, "columns"_a,
             "Give a shard's columns, which stay where they are. A second time changes nothing.")
        .def("gather", &PyShardColumns::gather, "samples"_a, "ids"_a.noconvert(), "out"_a,
             "Shards that must be opened first; if there are none, fills the columns `out` and "
             "the samples' places `ids` in the list of shards' owners, which comes second.");
}
