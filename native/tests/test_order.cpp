#include "order.h"

#include <vector>

#include "check.h"
#include "random.h"

namespace {

using slip::Feistel;
using slip::Order;
using slip::philox;

// Of Random123's kat_vectors.
void philox_known_answers() {
    const std::uint32_t ones = 0xFFFFFFFFu;
    CHECK(philox({0, 0, 0, 0}, {0, 0}) ==
          slip::PhiloxBlock{0x6627E8D5u, 0xE169C58Du, 0xBC57AC4Cu, 0x9B00DBD8u});
    CHECK(philox({ones, ones, ones, ones}, {ones, ones}) ==
          slip::PhiloxBlock{0x408F276Du, 0x41C83B0Eu, 0xA20BC7C6u, 0x6D5451FDu});
    CHECK(
        philox({0x243F6A88u, 0x85A308D3u, 0x13198A2Eu, 0x03707344u}, {0xA4093822u, 0x299F31D0u}) ==
        slip::PhiloxBlock{0xD16CFE09u, 0x94FDCCEBu, 0x5001E420u, 0x24126EA1u});
}

template <class Map>
bool is_bijection(std::size_t count, Map&& map) {
    std::vector<std::int64_t> positions(count), samples(count);
    for (std::size_t i = 0; i < count; ++i) positions[i] = static_cast<std::int64_t>(i);
    map(positions.data(), count, samples.data());
    std::vector<bool> seen(count);
    for (const std::int64_t sample : samples) {
        if (sample < 0 || static_cast<std::size_t>(sample) >= count || seen[sample]) return false;
        seen[sample] = true;
    }
    return true;
}

// Smaller than any that an Order asks for, where every mistake shows.
void small_networks_are_bijections() {
    for (std::size_t count = 1; count <= 600; ++count) {
        const Feistel network(count, {static_cast<std::uint32_t>(count), 5});
        CHECK(is_bijection(count, [&](auto... args) { network.map(args...); }));
    }
}

void orders_are_bijections() {
    for (const int count :
         {1, 2, 3, 255, 256, 257, 65535, 65536, 65537, 131071, 131072, 131073, 1'000'003}) {
        check::looking_at(std::to_string(count) + " samples");
        const Order order(count, 7, 3);
        CHECK(is_bijection(static_cast<std::size_t>(count),
                           [&](auto... args) { order.at(args...); }));
    }
}

void huge_orders_stay_inside() {
    testing::Random random(70);
    for (int bits = 17; bits <= 62; ++bits) {
        const std::int64_t power = std::int64_t{1} << bits;
        for (const std::int64_t count : {power - 1, power, bits < 62 ? power + 1 : power}) {
            const Order order(count, random.next(), random.next());
            for (int i = 0; i < 100; ++i) {
                const auto position = static_cast<std::int64_t>(random.next() % count);
                std::int64_t sample;
                order.at(&position, 1, &sample);
                CHECK(sample >= 0 && sample < count);
            }
        }
    }
}

void no_samples() {
    const Order order(0, 1, 2);
    order.at(nullptr, 0, nullptr);
    CHECK(order.count() == 0);
}

}  // namespace

int main() {
    check::run("philox known answers", philox_known_answers);
    check::run("small networks are bijections", small_networks_are_bijections);
    check::run("orders are bijections", orders_are_bijections);
    check::run("huge orders stay inside", huge_orders_stay_inside);
    check::run("no samples", no_samples);
    return check::finish();
}
