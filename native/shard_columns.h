// Index columns of a dataset's shards, gathered for samples wherever they lie.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace slip {

class ShardColumns {
  public:
    // Shard s holds samples [firsts[s], firsts[s + 1]); column c has item_bytes[c] of each.
    // `firsts` starts at 0 and never falls.
    ShardColumns(std::vector<std::int64_t> firsts, std::vector<std::size_t> item_bytes);

    std::size_t shards() const { return firsts_.size() - 1; }
    std::size_t columns() const { return item_bytes_.size(); }
    std::int64_t samples() const { return firsts_.back(); }
    // Of one shard's part of a column.
    std::size_t bytes(std::size_t shard, std::size_t column) const {
        return static_cast<std::size_t>(firsts_[shard + 1] - firsts_[shard]) * item_bytes_[column];
    }
    std::size_t item_bytes(std::size_t column) const { return item_bytes_[column]; }

    bool is_open(std::size_t shard) const { return open_[shard].load(std::memory_order_acquire); }
    // Says where a shard's columns lie, at any address; once per shard, one call at a time. Other
    // threads may read meanwhile: there is no lock, which a fork could leave locked for ever.
    void open(std::size_t shard, const std::vector<const std::uint8_t*>& columns);

    // Numbers the shards that hold these samples, in ascending order: `used` has them, `ids` the
    // place in it for each sample. All samples lie inside the dataset.
    void find(const std::int64_t* samples, std::size_t count, std::uint32_t* ids,
              std::vector<std::uint32_t>& used) const;
    // Copies the samples' items of each column. All that is `used` is open.
    void gather(const std::int64_t* samples, std::size_t count, const std::uint32_t* ids,
                const std::vector<std::uint32_t>& used, std::uint8_t* const* out) const;

  private:
    std::vector<std::int64_t> firsts_;
    std::vector<std::size_t> item_bytes_;
    std::vector<const std::uint8_t*> data_;  // [shards, columns]
    std::unique_ptr<std::atomic<bool>[]> open_;
};

}  // namespace slip
