// What the GPU decodes: the compressed tiles of a batch's crops, gathered into one slot. The CPU
// looks at headers and lengths and copies bytes, nothing else. cuda/kernels/layout.cuh has the
// slot's layout.
#pragma once

#include <cstdint>
#include <vector>

#include "batch.h"
#include "crop.h"
#include "packed_axis.h"
#include "tile_record.h"

namespace slip {

// Bytes of memory and groups of threads that a slot's kernels need.
struct SliceSizes {
    std::size_t slot = 0;
    std::size_t planes = 0, middle = 0;  // decoded samples, and the first pass of the resize
    std::uint32_t segment_groups = 0, pixel_groups = 0;
    std::uint32_t table_bytes = 0;  // of shared memory, for the Huffman tables of a group
};

// A batch on its way: first the plan is made, which says how large the slot must be, then it is
// written. The payloads must stay until then.
class Slices {
  public:
    // Plans crops [first, end) of the batch, fewer if they would need more than `most_bytes` of
    // device memory, but one at least. Throws std::bad_alloc.
    Slices(const Batch& batch, std::size_t first, std::size_t end, std::size_t most_bytes,
           int threads);

    // One past the last crop that was planned.
    std::size_t end() const { return end_; }
    // Of each crop planned; those that are not ok are not in the slot, or of no use there.
    // Checksums are looked at when bytes are copied: they are known after `write`.
    const std::vector<Status>& statuses() const { return statuses_; }
    std::size_t pictures() const { return pictures_.size(); }
    const SliceSizes& sizes() const { return sizes_; }

    // `slot` has sizes().slot bytes, at a multiple of 16.
    void write(std::uint8_t* slot, int threads);

  private:
    // One crop.
    struct Plan {
        TileRecord record;
        Region region;
        Needed needed;
        PackedAxis across, down;
        int first_tile, end_tile;
        std::size_t data_bytes = 0;
        std::size_t plane_bytes = 0, pixels = 0;
        int rows_per_group = 0;
        bool down_first = false;
        // Where its parts start.
        std::size_t data_at, plane_at, first_pixel, first_segment, first_code;
        std::size_t across_at, down_at;
        std::size_t place;

        std::size_t segments() const {
            return std::size_t{1} * (end_tile - first_tile) * (region.bottom - region.top);
        }
        std::size_t device_bytes() const {
            return data_bytes + plane_bytes + pixels * sizeof(std::uint32_t);
        }
        std::uint32_t segment_groups() const;
        std::uint32_t pixel_groups() const;
    };

    bool is_intact(std::size_t place) const;
    Status plan(std::size_t place, Plan& plan) const;
    void arrange();
    void write_picture(const Plan& plan, std::uint8_t* slot) const;

    const Batch& batch_;
    std::size_t first_, end_;
    std::vector<Status> statuses_;
    std::vector<Plan> pictures_;
    std::vector<std::pair<PackedAxis, std::size_t>> axes_;  // each once, and where it goes
    SliceSizes sizes_;
    std::size_t pictures_at_, segments_at_, codes_at_, groups_at_[2];
};

}  // namespace slip
