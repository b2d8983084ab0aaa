#define SLIP_ISA portable  // entropy.h without special instructions: nothing here is hot

#include "coefficients.h"

#include <cstring>
#include <memory>

#include "entropy.h"
#include "tile_record.h"

namespace slip {

void Coefficients::allocate() {
    for (int c = 0; c < frame.component_count; ++c) {
        Plane& plane = planes[c];
        plane.width_blocks = Frame::ceil_div(frame.plane_width(c), 8);
        plane.height_blocks = Frame::ceil_div(frame.plane_height(c), 8);
        plane.blocks.resize(static_cast<std::size_t>(plane.width_blocks) * plane.height_blocks *
                            64);
    }
}

namespace {

using namespace portable;

struct Tables {
    DecodeTable dc[4], ac[4];
};

// Copies the blocks of one MCU to their planes, but for those beyond the edges.
const std::int16_t* place_mcu(const std::int16_t* block, int row, int column, Coefficients& out) {
    for (int c = 0; c < out.frame.component_count; ++c) {
        const Component& component = out.frame.components[c];
        Plane& plane = out.planes[c];
        for (int y = row * component.v; y < (row + 1) * component.v; ++y) {
            for (int x = column * component.h; x < (column + 1) * component.h; ++x, block += 64) {
                if (y < plane.height_blocks && x < plane.width_blocks) {
                    std::memcpy(plane.block(y, x), block, 64 * sizeof(std::int16_t));
                }
            }
        }
    }
    return block;
}

}  // namespace

Status decode_tile_record(const TileRecord& record, Coefficients& out) {
    const JpegHeader& header = record.header;
    const auto tables = std::make_unique<Tables>();
    McuPlan plan;
    const Status status = plan_mcu(header, tables->dc, tables->ac, plan);
    if (status != Status::ok) return status;
    out.frame = header.frame;
    out.colour = header.colour;
    out.markers.assign(record.markers, record.markers + record.marker_bytes);
    out.allocate();
    for (int c = 0; c < out.frame.component_count; ++c) {
        out.planes[c].quant = header.quant[header.frame.components[c].quant];
    }
    std::vector<std::int16_t> blocks(static_cast<std::size_t>(record.tile_mcus) * plan.block_count *
                                     64);
    std::vector<std::uint8_t> last(blocks.size() / 64);
    const std::uint8_t* segment = record.segments;
    std::size_t index = 0;
    for (int row = 0; row < out.frame.mcu_rows; ++row) {
        for (int tile = 0; tile < record.tiles_per_row; ++tile, ++index) {
            const std::size_t size = record.segment_length(index);
            const int mcus = record.mcus_in_tile(tile);
            std::fill(blocks.begin(), blocks.end(), 0);
            Stream stream;
            stream.start(segment, static_cast<std::size_t>(record.end - segment));
            decode_mcus(stream, plan, mcus, blocks.data(), last.data());
            const Status end = check_end(stream, size);
            if (end != Status::ok) return end;
            const std::int16_t* block = blocks.data();
            for (int m = 0; m < mcus; ++m)
                block = place_mcu(block, row, tile * record.tile_mcus + m, out);
            segment += size;
        }
    }
    return Status::ok;
}

}  // namespace slip
