#include "slices.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <unordered_map>

#include "checksum.h"
#include "cuda/kernels/huffman.cuh"
#include "huffman.h"
#include "pool.h"

namespace slip {
namespace {

constexpr std::size_t kAlignment = 16;
constexpr std::size_t kCachedAxisBytes = 128 << 20;
// Crops are planned in so many at a time, so that a limit does not mean planning all for nothing.
constexpr std::size_t kPlanStep = 1024;
constexpr std::size_t kMostPictures = 65535;  // that a grid has room for

std::size_t aligned(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::uint32_t groups_of(std::size_t things, int group) {
    return static_cast<std::uint32_t>((things + group - 1) / group);
}

AxisCache& axis_cache() {
    static AxisCache cache(kCachedAxisBytes);
    return cache;
}

// The Huffman codes that a picture's components name, those of DC coefficients first.
struct Codes {
    const HuffmanSpec* specs[2 * kMaxComponents];
    int dc_count = 0, count = 0;
    std::uint16_t dc[kMaxComponents], ac[kMaxComponents];
};

Codes codes_of(const JpegHeader& header) {
    Codes codes;
    const auto number = [&](const HuffmanSpec& spec, int from) {
        int i = from;
        while (i < codes.count && codes.specs[i] != &spec) ++i;
        if (i == codes.count) codes.specs[codes.count++] = &spec;
        return static_cast<std::uint16_t>(i);
    };
    const int components = header.frame.component_count;
    for (int c = 0; c < components; ++c)
        codes.dc[c] = number(header.dc[header.frame.components[c].dc], 0);
    codes.dc_count = codes.count;
    for (int c = 0; c < components; ++c)
        codes.ac[c] = number(header.ac[header.frame.components[c].ac], codes.dc_count);
    return codes;
}

Status check_codes(const JpegHeader& header) {
    const Codes codes = codes_of(header);
    for (int i = 0; i < codes.count; ++i) {
        const Status status = check_code(*codes.specs[i], i < codes.dc_count);
        if (status != Status::ok) return status;
    }
    return Status::ok;
}

// Bytes of a component's decoded samples, row by row.
struct PlaneSize {
    int stride, height;
    std::size_t bytes() const { return aligned(static_cast<std::size_t>(stride) * height); }
};

PlaneSize plane_size(const Component& component, const Region& region) {
    return {(region.right - region.left) * component.h * 8,
            (region.bottom - region.top) * component.v * 8};
}

void fill_component(const JpegHeader& header, int c, const Region& region, cuda::Component& out) {
    const Frame& frame = header.frame;
    const Component& component = frame.components[c];
    out.stride = plane_size(component, region).stride;
    out.left = region.left * component.h * 8;
    out.top = region.top * component.v * 8;
    out.width = frame.plane_width(c);
    out.height = frame.plane_height(c);
    out.h_ratio = frame.h_max / component.h;
    out.v_ratio = frame.v_max / component.v;
    out.across = static_cast<std::uint16_t>(component.h);
    out.down = static_cast<std::uint16_t>(component.v);
    const auto& quant = header.quant[component.quant];
    for (std::size_t k = 0; k < 64; k += 2)
        out.quant[k / 2] = quant[k] | static_cast<std::uint32_t>(quant[k + 1]) << 16;
}

void fill_blocks(const Frame& frame, cuda::Picture& out) {
    int b = 0;
    for (int c = 0; c < frame.component_count; ++c) {
        for (int y = 0; y < frame.components[c].v; ++y) {
            for (int x = 0; x < frame.components[c].h; ++x, ++b) {
                out.block_component[b] = static_cast<std::uint8_t>(c);
                out.block_column[b] = static_cast<std::uint8_t>(x);
                out.block_row[b] = static_cast<std::uint8_t>(y);
            }
        }
    }
}

// See cuda/kernels/pixels.cuh.
bool goes_in_pairs(const JpegHeader& header) {
    if (header.colour != Colour::ycc) return false;
    const Frame& frame = header.frame;
    const Component& luma = frame.components[0];
    bool halved =
        luma.h == frame.h_max && luma.v == frame.v_max && frame.h_max == 2 && frame.v_max <= 2;
    for (int c = 1; c < 3; ++c)
        halved &= frame.components[c].h == 1 && frame.plane_width(c) > 2 &&
                  frame.v_max / frame.components[c].v <= 2;
    return halved;
}

template <class T>
T* part(std::uint8_t* slot, std::size_t at) {
    return reinterpret_cast<T*>(slot + at);
}

}  // namespace

std::uint32_t Slices::Plan::segment_groups() const {
    return groups_of(segments(), cuda::kSegmentGroup);
}

std::uint32_t Slices::Plan::pixel_groups() const {
    return rows_per_group ? groups_of(static_cast<std::size_t>(needed.down.size), rows_per_group)
                          : groups_of(pixels, cuda::kPixelGroup);
}

Slices::Slices(const Batch& batch, std::size_t first, std::size_t end, std::size_t most_bytes,
               int threads)
    : batch_(batch), first_(first), end_(first) {
    std::size_t total = 0;
    for (bool full = false; end_ < end && !full;) {
        const std::size_t count = std::min(kPlanStep, end - end_), before = pictures_.size();
        pictures_.resize(before + count);
        statuses_.resize(statuses_.size() + count);
        Status* statuses = statuses_.data() + (end_ - first_);
        parallel_for(count, threads, [&](std::size_t i) {
            try {
                statuses[i] = plan(end_ + i, pictures_[before + i]);
            } catch (const std::bad_alloc&) {
                statuses[i] = Status::memory;
            }
        });
        std::size_t kept = before, i = 0;
        for (; i < count; ++i) {
            if (statuses[i] != Status::ok) continue;
            Plan& plan = pictures_[before + i];
            total += plan.device_bytes();
            full = (total > most_bytes && kept > 0) || kept == kMostPictures;
            if (full) break;
            if (kept != before + i) pictures_[kept] = std::move(plan);
            ++kept;
        }
        pictures_.resize(kept);
        end_ += i;
    }
    statuses_.resize(end_ - first_);
    arrange();
}

bool Slices::is_intact(std::size_t place) const {
    const std::uint32_t* checksum = batch_.payloads.checksum(place);
    const View data = batch_.payloads[place];
    return !checksum || crc32c(data.data(), data.size()) == *checksum;
}

Status Slices::plan(std::size_t place, Plan& plan) const {
    if (static_cast<Coding>(batch_.codings[place]) != Coding::tiles) return Status::unsupported;
    const View data = batch_.payloads[place];
    TileRecord& record = plan.record;
    Status status = parse_tile_record(data.data(), data.size(), record);
    if (status == Status::ok) status = check_codes(record.header);
    if (status != Status::ok) return is_intact(place) ? status : Status::checksum;

    const Frame& frame = record.header.frame;
    const std::int32_t* b = batch_.boxes + 4 * place;
    const Box box{b[0], b[1], b[2], b[3]};
    Target target{nullptr, batch_.width, batch_.height, batch_.filter, batch_.order, false, false};
    Window window;
    if (batch_.resized) {
        const std::int32_t* r = batch_.resized + 4 * place;
        window = {r[0], r[1], r[2], r[3]};
        target.window = &window;
    }
    if (!is_inside(box, frame.width, frame.height) || !needed_for(target, box, plan.needed))
        return Status::box;
    const Stretch &across = plan.needed.across, &down = plan.needed.down;
    plan.across = axis_cache().get(across, batch_.filter);
    plan.down = axis_cache().get(down, batch_.filter);
    const bool both = across.input != across.output && down.input != down.output;
    plan.down_first =
        both && batch_.filter != Filter::nearest && vertical_first(across, down, batch_.order);
    if (!plan.down_first && across.size <= cuda::kRowPixels)
        plan.rows_per_group = cuda::kRowPixels / across.size;
    plan.pixels = plan.down_first ? std::size_t{1} * batch_.height * across.size
                                  : std::size_t{1} * batch_.width * down.size;

    Region& region = plan.region;
    region = region_of(frame, plan.needed.box);
    plan.first_tile = region.left / record.tile_mcus;
    plan.end_tile = Frame::ceil_div(region.right, record.tile_mcus);
    region.left = plan.first_tile * record.tile_mcus;
    region.right = std::min(plan.end_tile * record.tile_mcus, frame.mcus_per_row);
    for (int row = region.top; row < region.bottom; ++row) {
        std::size_t index = std::size_t{1} * row * record.tiles_per_row + plan.first_tile;
        for (int tile = plan.first_tile; tile < plan.end_tile; ++tile)
            plan.data_bytes += record.segment_length(index++);
    }
    for (int c = 0; c < frame.component_count; ++c)
        plan.plane_bytes += plane_size(frame.components[c], region).bytes();
    plan.place = place;
    return Status::ok;
}

void Slices::arrange() {
    std::uint32_t most_codes = 0;
    std::size_t segments = 0, codes = 0, planes = 0, pixels = 0;
    for (Plan& plan : pictures_) {
        plan.first_segment = segments;
        plan.first_code = codes;
        plan.plane_at = planes;
        plan.first_pixel = pixels;
        segments += plan.segments();
        const auto own_codes = static_cast<std::uint32_t>(codes_of(plan.record.header).count);
        codes += own_codes;
        most_codes = std::max(most_codes, own_codes);
        planes += plan.plane_bytes;
        pixels += plan.pixels;
        sizes_.segment_groups += plan.segment_groups();
        sizes_.pixel_groups += plan.pixel_groups();
    }
    sizes_.table_bytes = most_codes * static_cast<std::uint32_t>(sizeof(cuda::Table));
    sizes_.planes = planes;
    sizes_.middle = pixels * sizeof(std::uint32_t);

    std::size_t at = aligned(sizeof(cuda::Head));
    const auto take = [&](std::size_t bytes) {
        const std::size_t start = at;
        at += aligned(bytes);
        return start;
    };
    pictures_at_ = take(pictures_.size() * sizeof(cuda::Picture));
    segments_at_ = take(segments * sizeof(cuda::Segment));
    codes_at_ = take(codes * sizeof(cuda::Code));
    for (std::size_t& groups_at : groups_at_)
        groups_at = take((pictures_.size() + 1) * sizeof(std::uint32_t));
    std::unordered_map<const void*, std::size_t> places;
    const auto place_of = [&](const PackedAxis& axis) {
        const auto [found, is_new] = places.try_emplace(axis.get(), at);
        if (is_new) axes_.emplace_back(axis, take(axis->size() * sizeof(std::int32_t)));
        return found->second;
    };
    for (Plan& plan : pictures_) {
        plan.across_at = place_of(plan.across);
        plan.down_at = place_of(plan.down);
    }
    for (Plan& plan : pictures_) {
        plan.data_at = at;
        at += plan.data_bytes;
    }
    sizes_.slot = aligned(at + cuda::kReadable);
}

void Slices::write(std::uint8_t* slot, int threads) {
    const auto as_u32 = [](std::size_t value) { return static_cast<std::uint32_t>(value); };
    *part<cuda::Head>(slot, 0) = {
        as_u32(pictures_.size()), as_u32(batch_.width),  as_u32(batch_.height),
        as_u32(pictures_at_),     as_u32(segments_at_),  as_u32(codes_at_),
        as_u32(groups_at_[0]),    as_u32(groups_at_[1]), as_u32(sizes_.slot)};
    auto *segment_groups = part<std::uint32_t>(slot, groups_at_[0]),
         *pixel_groups = part<std::uint32_t>(slot, groups_at_[1]);
    *segment_groups = *pixel_groups = 0;
    for (const Plan& plan : pictures_) {
        segment_groups[1] = *segment_groups + plan.segment_groups();
        pixel_groups[1] = *pixel_groups + plan.pixel_groups();
        ++segment_groups;
        ++pixel_groups;
    }
    for (const auto& [axis, at] : axes_)
        std::memcpy(slot + at, axis->data(), axis->size() * sizeof(std::int32_t));
    std::memset(slot + sizes_.slot - cuda::kReadable, 0, cuda::kReadable);
    parallel_for(pictures_.size(), threads, [&](std::size_t i) {
        // One after the other: what the checksum has read is copied out of the cache.
        const std::size_t place = pictures_[i].place;
        if (!is_intact(place)) statuses_[place - first_] = Status::checksum;
        write_picture(pictures_[i], slot);
    });
}

void Slices::write_picture(const Plan& plan, std::uint8_t* slot) const {
    const TileRecord& record = plan.record;
    const JpegHeader& header = record.header;
    const Frame& frame = header.frame;
    const auto as_u32 = [](auto value) { return static_cast<std::uint32_t>(value); };
    const auto number = static_cast<std::size_t>(&plan - pictures_.data());
    cuda::Picture& out = part<cuda::Picture>(slot, pictures_at_)[number];
    out = {};
    const Codes codes = codes_of(header);
    std::size_t plane = 0;
    for (int c = 0; c < frame.component_count; ++c) {
        fill_component(header, c, plan.region, out.components[c]);
        out.components[c].plane = as_u32(plane);
        out.components[c].dc = codes.dc[c];
        out.components[c].ac = codes.ac[c];
        plane += plane_size(frame.components[c], plan.region).bytes();
    }
    fill_blocks(frame, out);
    out.planes = plan.plane_at;
    out.middle = plan.first_pixel;
    out.first_segment = as_u32(plan.first_segment);
    out.segments = as_u32(plan.segments());
    out.first_code = as_u32(plan.first_code);
    out.dc_codes = as_u32(codes.dc_count);
    out.codes = as_u32(codes.count);
    out.component_count = as_u32(frame.component_count);
    out.colour = as_u32(header.colour);
    out.pairs = goes_in_pairs(header);
    out.mcus_across = as_u32(plan.region.right - plan.region.left);
    out.mcu_rows = as_u32(plan.region.bottom - plan.region.top);
    out.tile_mcus = as_u32(record.tile_mcus);
    out.tiles_across = as_u32(plan.end_tile - plan.first_tile);
    out.blocks_per_mcu = as_u32(frame.blocks_per_mcu);
    out.x = plan.needed.box.x;
    out.y = plan.needed.box.y;
    out.input_width = as_u32(plan.needed.across.size);
    out.rows_per_group = as_u32(plan.rows_per_group);
    out.middle_width = as_u32(plan.down_first ? plan.needed.across.size : batch_.width);
    out.middle_height = as_u32(plan.down_first ? batch_.height : plan.needed.down.size);
    out.across_at = as_u32(plan.across_at);
    out.down_at = as_u32(plan.down_at);
    out.mirror = batch_.flips[plan.place] & 1;
    out.upside_down = batch_.flips[plan.place] >> 1 & 1;
    out.down_first = plan.down_first;
    out.place = as_u32(plan.place);

    auto* code = part<cuda::Code>(slot, codes_at_) + plan.first_code;
    for (int i = 0; i < codes.count; ++i, ++code) {
        std::memcpy(code->counts, codes.specs[i]->counts, sizeof code->counts);
        const auto symbols = static_cast<std::size_t>(codes.specs[i]->symbol_count);
        std::memcpy(code->symbols, codes.specs[i]->symbols, symbols);
        std::memset(code->symbols + symbols, 0, sizeof code->symbols - symbols);
    }

    auto* segment = part<cuda::Segment>(slot, segments_at_) + plan.first_segment;
    std::size_t to = plan.data_at, from = 0, index = 0;
    for (int row = plan.region.top; row < plan.region.bottom; ++row) {
        const std::size_t first = std::size_t{1} * row * record.tiles_per_row + plan.first_tile;
        for (; index < first; ++index) from += record.segment_length(index);
        std::size_t length = 0;
        for (int tile = plan.first_tile; tile < plan.end_tile; ++tile, ++index, ++segment) {
            const std::size_t own = record.segment_length(index);
            *segment = {as_u32(to + length), as_u32(own)};
            length += own;
        }
        std::memcpy(slot + to, record.segments + from, length);
        from += length;
        to += length;
    }
}

}  // namespace slip
