// Compiled once per instruction set; dispatch.cpp chooses. No standard containers here: their
// shared code must not end up with instructions that an older processor lacks.
#include "decode.h"

#include <algorithm>
#include <cstring>

#include "crop.h"
#include "decode_file.h"
#include "entropy.h"
#include "finish.h"
#include "isa.h"
#include "planes.h"
#include "scratch.h"

namespace slip {
namespace SLIP_ISA {
namespace {

bool reserve_blocks(Scratch& scratch, std::size_t blocks) {
    return scratch.blocks.reserve(blocks * 64 * sizeof(std::int16_t)) &&
           scratch.last.reserve(blocks);
}

void clear_blocks(Scratch& scratch, std::size_t blocks) {
    std::memset(scratch.blocks.data(), 0, blocks * 64 * sizeof(std::int16_t));
}

// The tiles of one row, two at a time.
Status decode_tile_row(const TileRecord& record, const McuPlan& plan, int row, int first_tile,
                       int end_tile, std::size_t offset, const Planes& planes, Scratch& scratch) {
    const int per_tile = record.tile_mcus * plan.block_count;
    std::size_t index = static_cast<std::size_t>(row) * record.tiles_per_row + first_tile;
    const auto readable = static_cast<std::size_t>(record.end - record.segments);
    auto* blocks = scratch.blocks.as<std::int16_t>();
    std::uint8_t* last = scratch.last.data();
    for (int tile = first_tile; tile < end_tile;) {
        Stream a, b;
        const std::size_t size_a = record.segment_length(index);
        a.start(record.segments + offset, readable - offset);
        const int mcus = record.mcus_in_tile(tile);
        clear_blocks(scratch, 2 * static_cast<std::size_t>(per_tile));
        const bool pair = tile + 1 < end_tile && record.mcus_in_tile(tile + 1) == mcus;
        if (pair) {
            const std::size_t size_b = record.segment_length(index + 1);
            b.start(record.segments + offset + size_a, readable - offset - size_a);
            decode_mcus_pair(a, b, plan, mcus, blocks, blocks + 64 * per_tile, last,
                             last + per_tile);
            const Status status = check_end(b, size_b);
            if (status != Status::ok) return status;
            offset += size_b;
        } else {
            decode_mcus(a, plan, mcus, blocks, last);
        }
        const Status status = check_end(a, size_a);
        if (status != Status::ok) return status;
        offset += size_a;
        const int tiles = pair ? 2 : 1;
        planes.put(row, tile * record.tile_mcus, pair ? 2 * mcus : mcus, blocks, last);
        tile += tiles;
        index += tiles;
    }
    return Status::ok;
}

std::size_t length_of(const TileRecord& record, std::size_t first, std::size_t end) {
    std::size_t total = 0;
    for (std::size_t i = first; i < end; ++i) total += record.segment_length(i);
    return total;
}

// Decoded rows of MCUs on their way into the target.
class Output {
  public:
    Status begin(const JpegHeader& header, const Region& region, const Needed& needed,
                 const Target& target, Scratch& scratch) {
        box_ = needed.box;
        if (!planes.prepare(header, region, scratch) ||
            !rows_.prepare(planes, header, box_, scratch))
            return Status::memory;
        frame_ = &header.frame;
        region_ = region;
        return finisher_.begin(needed, target, scratch);
    }

    // The blocks of this row of MCUs are in `planes`. The triangle filter needs the chroma row
    // below as well.
    void row_done(int row) {
        const int decoded =
            (row + 1) * frame_->mcu_height() - (frame_->v_max > 1 ? frame_->v_max : 0);
        const int ready = row + 1 == region_.bottom ? box_.height : decoded - box_.y;
        finisher_.advance(rows_, std::clamp(ready, 0, box_.height));
    }

    Planes planes;

  private:
    PlaneRows rows_;
    Finisher finisher_;
    const Frame* frame_;
    Region region_;
    Box box_;
};

Status decode_tiles(const TileRecord& record, const Needed& needed, const Target& target,
                    Scratch& scratch) {
    const Frame& frame = record.header.frame;
    McuPlan plan;
    Status status = plan_mcu(record.header, scratch.dc, scratch.ac, plan);
    if (status != Status::ok) return status;
    Region region = region_of(frame, needed.box);
    const int first_tile = region.left / record.tile_mcus;
    const int end_tile = Frame::ceil_div(region.right, record.tile_mcus);
    region.left = first_tile * record.tile_mcus;
    region.right = std::min(end_tile * record.tile_mcus, frame.mcus_per_row);
    if (!reserve_blocks(scratch, 2 * static_cast<std::size_t>(record.tile_mcus) * plan.block_count))
        return Status::memory;
    Output output;
    status = output.begin(record.header, region, needed, target, scratch);
    if (status != Status::ok) return status;
    std::size_t done = 0, offset = 0;  // `offset` is where segment number `done` starts
    for (int row = region.top; row < region.bottom; ++row) {
        const std::size_t first = static_cast<std::size_t>(row) * record.tiles_per_row + first_tile;
        offset += length_of(record, done, first);
        done = first;
        status = decode_tile_row(record, plan, row, first_tile, end_tile, offset, output.planes,
                                 scratch);
        if (status != Status::ok) return status;
        output.row_done(row);
    }
    return Status::ok;
}

// A file's scan without stuffing, cut at its restart markers.
struct Scan {
    const std::uint8_t* data;
    const std::size_t* ends;
    std::size_t interval_count;
};

// Anything out of the ordinary is left to libjpeg: `unsupported`.
Status unstuff(const std::uint8_t* data, std::size_t size, const JpegHeader& header,
               Scratch& scratch, Scan& scan) {
    const std::size_t mcus =
        static_cast<std::size_t>(header.frame.mcus_per_row) * header.frame.mcu_rows;
    const std::size_t interval = header.restart_interval ? header.restart_interval : mcus;
    const std::size_t intervals = (mcus + interval - 1) / interval;
    if (!scratch.scan.reserve(size) ||
        !scratch.intervals.reserve(intervals * sizeof(std::size_t))) {
        return Status::memory;
    }
    std::uint8_t* out = scratch.scan.data();
    auto* ends = scratch.intervals.as<std::size_t>();
    scan = {out, ends, 0};
    const std::uint8_t *at = data, *end = data + size;
    for (;;) {
        const auto* marker = static_cast<const std::uint8_t*>(
            std::memchr(at, 0xFF, static_cast<std::size_t>(end - at)));
        if (!marker || marker + 1 >= end) return Status::unsupported;
        std::memcpy(out, at, static_cast<std::size_t>(marker - at));
        out += marker - at;
        at = marker + 2;
        const int code = marker[1];
        if (code == 0) {
            *out++ = 0xFF;
            continue;
        }
        if (scan.interval_count == intervals) return Status::unsupported;
        ends[scan.interval_count++] = static_cast<std::size_t>(out - scan.data);
        if (code == 0xD9) break;
        if (code != 0xD0 + static_cast<int>((scan.interval_count - 1) & 7))
            return Status::unsupported;
    }
    return scan.interval_count == intervals ? Status::ok : Status::unsupported;
}

// Bits of an interval of `size` bytes that were not read; negative if the stream ran over its end.
std::int64_t bits_left(const Stream& s, std::size_t size) {
    const auto used = static_cast<std::int64_t>(s.position) * 8 - s.count;
    return static_cast<std::int64_t>(size) * 8 - used;
}

Status decode_scan(const JpegHeader& header, const std::uint8_t* data, std::size_t size,
                   const Needed& needed, const Target& target, Scratch& scratch) {
    const Frame& frame = header.frame;
    if (frame.block_count() / 4 > static_cast<std::int64_t>(size)) return Status::dimensions;
    McuPlan plan;
    Scan scan;
    Status status = unstuff(data + header.size, size - header.size, header, scratch, scan);
    if (status == Status::ok) status = plan_mcu(header, scratch.dc, scratch.ac, plan);
    if (status != Status::ok) return status;
    const Region region = region_of(frame, needed.box);
    const std::size_t row_blocks = static_cast<std::size_t>(frame.mcus_per_row) * plan.block_count;
    if (!reserve_blocks(scratch, row_blocks)) return Status::memory;
    Output output;
    status = output.begin(header, region, needed, target, scratch);
    if (status != Status::ok) return status;
    auto* blocks = scratch.blocks.as<std::int16_t>();
    std::uint8_t* last = scratch.last.data();

    Stream stream;
    std::size_t interval = 0, begin = 0;
    int left_in_interval = 0;
    for (int row = 0; row < region.bottom; ++row) {
        clear_blocks(scratch, row_blocks);
        for (int column = 0; column < frame.mcus_per_row;) {
            const std::size_t size = scan.ends[interval] - begin;
            if (left_in_interval == 0) {
                stream.start(scan.data + begin, size);
                left_in_interval = header.restart_interval ? header.restart_interval
                                                           : frame.mcus_per_row * frame.mcu_rows;
            }
            const int count = std::min(left_in_interval, frame.mcus_per_row - column);
            const std::size_t at = static_cast<std::size_t>(column) * plan.block_count;
            decode_mcus(stream, plan, count, blocks + 64 * at, last + at);
            // At every step, not only at the interval's end: a crop may need no more of it.
            const std::int64_t left = bits_left(stream, size);
            if (stream.bad) return Status::huffman_code;
            if (left < 0) return Status::segment_overrun;
            left_in_interval -= count;
            column += count;
            const bool whole = left_in_interval == 0 ||
                               (row == frame.mcu_rows - 1 && column == frame.mcus_per_row);
            if (whole) {
                if (left > 7)
                    return Status::segment_leftover;  // but files may fill the last byte as they
                                                      // like
                begin = scan.ends[interval++];
            }
        }
        if (row >= region.top) {
            const std::size_t at = static_cast<std::size_t>(region.left) * plan.block_count;
            output.planes.put(row, region.left, region.right - region.left, blocks + 64 * at,
                              last + at);
            output.row_done(row);
        }
    }
    return Status::ok;
}

// From a whole picture of `width` pixels a row.
Status finish_pixels(const std::uint8_t* pixels, int width, const Needed& needed,
                     const Target& target, Scratch& scratch) {
    const std::size_t stride = std::size_t{3} * width;
    PixelRows rows{pixels + needed.box.y * stride + std::size_t{3} * needed.box.x, stride,
                   needed.box.width};
    Finisher finisher;
    const Status status = finisher.begin(needed, target, scratch);
    if (status == Status::ok) finisher.take_all(rows);
    return status;
}

Status decode_with_libjpeg(const Picture& picture, const Box& box, const Target& target,
                           Scratch& scratch) {
    FileSize size;
    const Status status = decode_file_whole(picture.data, picture.size, scratch.file, size);
    if (status != Status::ok) return status;
    Needed needed;
    if (!is_inside(box, size.width, size.height) || !needed_for(target, box, needed))
        return Status::box;
    return finish_pixels(scratch.file.data(), size.width, needed, target, scratch);
}

}  // namespace

Status decode_picture(const Picture& picture, const Box& box, const Target& target,
                      Scratch& scratch) {
    JpegHeader& header = scratch.record.header;
    Needed needed;
    const auto possible = [&] {
        return is_inside(box, header.frame.width, header.frame.height) &&
               needed_for(target, box, needed);
    };
    if (picture.coding == Coding::tiles) {
        const Status status = parse_tile_record(picture.data, picture.size, scratch.record);
        if (status != Status::ok) return status;
        return possible() ? decode_tiles(scratch.record, needed, target, scratch) : Status::box;
    }
    if (picture.size < 3 || std::memcmp(picture.data, "\xFF\xD8\xFF", 3) != 0)
        return Status::unsupported;
    if (parse_jpeg_header(picture.data, picture.size, header) == Status::ok) {
        if (!possible()) return Status::box;
        if (decode_scan(header, picture.data, picture.size, needed, target, scratch) == Status::ok)
            return Status::ok;
    }
    return decode_with_libjpeg(picture, box, target, scratch);
}

Status resize_picture(const std::uint8_t* pixels, int width, int height, const Target& target,
                      Scratch& scratch) {
    Needed needed;
    if (!needed_for(target, {0, 0, width, height}, needed)) return Status::box;
    return finish_pixels(pixels, width, needed, target, scratch);
}

}  // namespace SLIP_ISA
}  // namespace slip
