#include "checksum.h"

#include <vector>

#include "check.h"
#include "random.h"

namespace {

using testing::Random;

// Bit by bit, from the polynomial: slow and plain.
std::uint32_t plain_crc(const std::uint8_t* data, std::size_t size, std::uint32_t seed = 0) {
    std::uint32_t crc = ~seed;
    for (std::size_t i = 0; i < size; ++i) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

std::uint32_t crc_of(const std::vector<std::uint8_t>& data) {
    return slip::crc32c(data.data(), data.size());
}

std::vector<std::uint8_t> random_bytes(std::size_t size, Random& random) {
    std::vector<std::uint8_t> bytes(size);
    for (auto& byte : bytes) byte = random.byte();
    return bytes;
}

// The check value of the catalogue and the four examples of RFC 3720, B.4.
void known_vectors() {
    const char* digits = "123456789";
    CHECK(slip::crc32c(reinterpret_cast<const std::uint8_t*>(digits), 9) == 0xE3069283u);
    std::vector<std::uint8_t> bytes(32, 0);
    CHECK(crc_of(bytes) == 0x8A9136AAu);
    bytes.assign(32, 0xFF);
    CHECK(crc_of(bytes) == 0x62A8AB43u);
    for (int i = 0; i < 32; ++i) bytes[i] = static_cast<std::uint8_t>(i);
    CHECK(crc_of(bytes) == 0x46DD794Eu);
    for (int i = 0; i < 32; ++i) bytes[i] = static_cast<std::uint8_t>(31 - i);
    CHECK(crc_of(bytes) == 0x113FDB5Cu);
}

void nothing_is_zero_and_keeps_the_seed() {
    CHECK(slip::crc32c(nullptr, 0) == 0);
    CHECK(slip::crc32c(nullptr, 0, 0x12345678u) == 0x12345678u);
}

void every_split_continues() {
    Random random(1);
    const auto bytes = random_bytes(300, random);
    const std::uint32_t whole = crc_of(bytes);
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
        const std::uint32_t first = slip::crc32c(bytes.data(), cut);
        CHECK(slip::crc32c(bytes.data() + cut, bytes.size() - cut, first) == whole);
    }
    const auto large = random_bytes(20'000, random);
    for (int i = 0; i < 200; ++i) {
        const auto cut = static_cast<std::size_t>(random.between(0, 20'000));
        const std::uint32_t first = slip::crc32c(large.data(), cut);
        CHECK(slip::crc32c(large.data() + cut, large.size() - cut, first) == crc_of(large));
    }
}

// Three lanes of 2048 bytes go side by side, then words, then bytes.
void lane_boundaries() {
    Random random(2);
    const auto bytes = random_bytes(3 * 6144 + 64, random);
    for (const int lanes : {1, 2, 3}) {
        for (int off = -17; off <= 17; ++off) {
            const auto size = static_cast<std::size_t>(6144 * lanes + off);
            check::looking_at(std::to_string(size) + " bytes");
            CHECK(slip::crc32c(bytes.data(), size) == plain_crc(bytes.data(), size));
        }
    }
    for (const std::size_t size : {2047, 2048, 2049, 4095, 4096, 4097}) {
        CHECK(slip::crc32c(bytes.data(), size) == plain_crc(bytes.data(), size));
    }
}

void every_small_size_at_every_alignment() {
    Random random(3);
    const auto bytes = random_bytes(6200 + 16, random);
    for (std::size_t start = 0; start < 16; ++start) {
        for (std::size_t size = 0; size <= 80; ++size) {
            const std::uint32_t seed = static_cast<std::uint32_t>(random.next());
            CHECK(slip::crc32c(bytes.data() + start, size, seed) ==
                  plain_crc(bytes.data() + start, size, seed));
        }
        CHECK(slip::crc32c(bytes.data() + start, 6200) == plain_crc(bytes.data() + start, 6200));
    }
}

void every_single_bit_shows() {
    Random random(4);
    auto bytes = random_bytes(200, random);
    const std::uint32_t sound = crc_of(bytes);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
        CHECK(crc_of(bytes) != sound);
        bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    }
}

}  // namespace

int main() {
    check::run("known vectors", known_vectors);
    check::run("nothing is zero and keeps the seed", nothing_is_zero_and_keeps_the_seed);
    check::run("every split continues", every_split_continues);
    check::run("lane boundaries", lane_boundaries);
    check::run("every small size at every alignment", every_small_size_at_every_alignment);
    check::run("every single bit shows", every_single_bit_shows);
    return check::finish();
}
