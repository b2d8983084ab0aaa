#include "shard_columns.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace slip {
namespace {

// A shard's part of a column.
struct Part {
    const std::uint8_t* data;
    std::int64_t first;
};

// Where `size` is known when compiling, copies are single moves; columns need not be aligned.
template <class Size>
void copy_items(const std::int64_t* samples, std::size_t count, const std::uint32_t* ids,
                const std::vector<Part>& parts, std::uint8_t* out, Size size) {
    for (std::size_t i = 0; i < count; ++i) {
        const Part& part = parts[ids[i]];
        std::memcpy(out + i * size, part.data + (samples[i] - part.first) * size, size);
    }
}

template <std::size_t size>
using Known = std::integral_constant<std::size_t, size>;

}  // namespace

ShardColumns::ShardColumns(std::vector<std::int64_t> firsts, std::vector<std::size_t> item_bytes)
    : firsts_(std::move(firsts)),
      item_bytes_(std::move(item_bytes)),
      data_(shards() * columns()),
      open_(std::make_unique<std::atomic<bool>[]>(shards())) {}

void ShardColumns::open(std::size_t shard, const std::vector<const std::uint8_t*>& columns) {
    if (is_open(shard)) return;
    std::copy(columns.begin(), columns.end(), data_.begin() + shard * columns.size());
    open_[shard].store(true, std::memory_order_release);
}

void ShardColumns::find(const std::int64_t* samples, std::size_t count, std::uint32_t* ids,
                        std::vector<std::uint32_t>& used) const {
    constexpr std::uint32_t kUnused = 0xFFFFFFFFu;
    std::vector<std::uint32_t> places(shards(), kUnused);
    std::size_t shard = 0;
    for (std::size_t i = 0; i < count; ++i) {
        // Neighbours are often asked for together.
        if (samples[i] < firsts_[shard] || samples[i] >= firsts_[shard + 1]) {
            const auto next = std::upper_bound(firsts_.begin(), firsts_.end(), samples[i]);
            shard = static_cast<std::size_t>(next - firsts_.begin()) - 1;
        }
        ids[i] = static_cast<std::uint32_t>(shard);
        places[shard] = 0;
    }
    used.clear();
    for (std::size_t s = 0; s < places.size(); ++s) {
        if (places[s] == kUnused) continue;
        places[s] = static_cast<std::uint32_t>(used.size());
        used.push_back(static_cast<std::uint32_t>(s));
    }
    for (std::size_t i = 0; i < count; ++i) ids[i] = places[ids[i]];
}

void ShardColumns::gather(const std::int64_t* samples, std::size_t count, const std::uint32_t* ids,
                          const std::vector<std::uint32_t>& used, std::uint8_t* const* out) const {
    std::vector<Part> parts(used.size());
    for (std::size_t c = 0; c < columns(); ++c) {
        std::transform(used.begin(), used.end(), parts.begin(), [&](std::uint32_t shard) {
            return Part{data_[shard * columns() + c], firsts_[shard]};
        });
        const std::size_t size = item_bytes_[c];
        if (size == 8) {
            copy_items(samples, count, ids, parts, out[c], Known<8>());
        } else if (size == 4) {
            copy_items(samples, count, ids, parts, out[c], Known<4>());
        } else {
            copy_items(samples, count, ids, parts, out[c], size);
        }
    }
}

}  // namespace slip
