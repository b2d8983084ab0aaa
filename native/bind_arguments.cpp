#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "bind.h"

namespace {

std::atomic<bool> exiting{false};
std::thread::id exiting_thread;

}  // namespace

ReleasedGil::~ReleasedGil() {
    while (exiting && std::this_thread::get_id() != exiting_thread) pause();
    PyEval_RestoreThread(state_);
}

void ReleasedGil::stop_at_exit() {
    exiting_thread = std::this_thread::get_id();
    exiting = true;
}

void same_length(std::size_t got, std::size_t expected, const char* name) {
    if (got != expected) {
        throw nb::value_error((std::string(name) + " has " + std::to_string(got) +
                               " entries, expected " + std::to_string(expected))
                                  .c_str());
    }
}

bool lies_inside(std::uint64_t offset, std::uint64_t length, View data) {
    return offset <= data.size() && length <= data.size() - offset;
}

bool is_side(std::size_t pixels) { return pixels >= 1 && pixels <= slip::kLongestSide; }

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

slip::Payloads checked_payloads(Buffers& buffers, Objects maps, const List<std::uint32_t>& map_ids,
                                const List<std::uint64_t>& offsets,
                                const List<std::uint64_t>& lengths,
                                const std::optional<List<std::uint32_t>>& checksums) {
    const std::size_t count = map_ids.shape(0);
    same_length(offsets.shape(0), count, "offsets");
    same_length(lengths.shape(0), count, "lengths");
    if (checksums) same_length(checksums->shape(0), count, "checksums");
    slip::Payloads payloads{count,          {},
                            map_ids.data(), offsets.data(),
                            lengths.data(), checksums ? checksums->data() : nullptr};
    for (nb::handle map : maps) payloads.maps.push_back(buffers.add(map));
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t id = payloads.map_ids[i];
        if (id >= payloads.maps.size() ||
            !lies_inside(payloads.offsets[i], payloads.lengths[i], payloads.maps[id]))
            throw nb::value_error(
                ("sample " + std::to_string(i) + " lies outside its map").c_str());
    }
    return payloads;
}

slip::Batch checked_batch(const slip::Payloads& payloads, const List<std::uint8_t>& codings,
                          const Boxes& boxes, const List<std::uint8_t>& flips,
                          const std::optional<Boxes>& resized,
                          std::pair<std::size_t, std::size_t> size, int filter, int pass_order) {
    const std::size_t count = payloads.count;
    same_length(codings.shape(0), count, "codings");
    same_length(boxes.shape(0), count, "boxes");
    same_length(flips.shape(0), count, "flips");
    if (resized) same_length(resized->shape(0), count, "resized");
    if (count > 0 && !(is_side(size.first) && is_side(size.second)))
        throw nb::value_error("results must be 1 to 16777216 pixels high and wide");
    if (std::any_of(codings.data(), codings.data() + count, [](auto c) { return c > 1; }))
        throw nb::value_error("codings must be 0 or 1");
    return {payloads,
            codings.data(),
            boxes.data(),
            flips.data(),
            resized ? resized->data() : nullptr,
            nullptr,
            static_cast<int>(size.second),
            static_cast<int>(size.first),
            checked_filter(filter),
            checked_order(pass_order)};
}
