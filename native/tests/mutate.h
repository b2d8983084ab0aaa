// Ways to damage a file, reproducible from a seed.
#pragma once

#include <vector>

#include "jpeg_maker.h"

namespace testing {

inline std::size_t any_place(Random& random, const Bytes& bytes) {
    return static_cast<std::size_t>(random.next() % bytes.size());
}

// Headers are short and decide much: half of all places are among the first 700 bytes.
inline std::size_t telling_place(Random& random, const Bytes& bytes) {
    const std::size_t head = std::min<std::size_t>(bytes.size(), 700);
    return random.chance(2) ? static_cast<std::size_t>(random.next() % head)
                            : any_place(random, bytes);
}

inline void edit_length(Random& random, Bytes& bytes) {
    static const std::uint32_t numbers[] = {
        0,      1,      2,       3,      63,     64,         255,        256,       0x7FFF,
        0x8000, 0xFFFF, 0x10000, 0xFFDC, 0xFFDD, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
    const std::uint32_t number =
        random.chance(3) ? static_cast<std::uint32_t>(random.between(0, 70'000))
                         : numbers[random.between(0, static_cast<int>(std::size(numbers)) - 1)];
    const std::size_t at = telling_place(random, bytes);
    const int width = random.chance(2) ? 2 : 4;
    const bool big_endian = random.chance(2);
    for (int i = 0; i < width && at + i < bytes.size(); ++i) {
        const int shift = 8 * (big_endian ? width - 1 - i : i);
        bytes[at + i] = static_cast<std::uint8_t>(number >> shift);
    }
}

inline void splice(Random& random, Bytes& bytes, const Bytes& other) {
    const std::size_t from = any_place(random, other);
    const std::size_t count = std::min<std::size_t>(other.size() - from, random.between(1, 300));
    const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
    const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(telling_place(random, bytes));
    if (random.chance(2)) {
        bytes.insert(at, begin, begin + static_cast<std::ptrdiff_t>(count));
    } else {
        const auto room =
            std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(count), bytes.end() - at);
        std::copy(begin, begin + room, at);
    }
}

inline void remove_range(Random& random, Bytes& bytes) {
    const std::size_t at = telling_place(random, bytes);
    const std::size_t count = std::min<std::size_t>(bytes.size() - at, random.between(1, 40));
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    bytes.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
}

// Segment lengths of a JPEG's markers, and the sizes in its frame: the numbers that code trusts
// most.
inline void edit_marker(Random& random, Bytes& bytes) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i + 9 < bytes.size(); ++i) {
        const bool marker = bytes[i] == 0xFF && bytes[i + 1] >= 0xC0 && bytes[i + 1] != 0xFF;
        if (marker) places.push_back(i);
    }
    if (places.empty()) return;
    const std::size_t at = places[static_cast<std::size_t>(random.next() % places.size())];
    switch (random.between(0, 3)) {
        case 0: bytes[at + 1] = static_cast<std::uint8_t>(random.between(0xC0, 0xFE)); break;
        case 1:
            bytes[at + 3] = static_cast<std::uint8_t>(bytes[at + 3] + random.between(-3, 3));
            break;
        case 2: bytes[at + random.between(4, 9)] = random.byte(); break;
        default: bytes[at + 2] = random.byte(); break;
    }
}

// One to four damages, most often one.
inline Bytes mutate(const Bytes& sound, const Bytes& other, Random& random) {
    Bytes bytes = sound;
    int left = random.chance(3) ? random.between(2, 4) : 1;
    while (left-- > 0 && !bytes.empty()) {
        switch (random.between(0, 7)) {
            case 0:
            case 1:
                bytes[telling_place(random, bytes)] ^=
                    static_cast<std::uint8_t>(1 << random.between(0, 7));
                break;
            case 2:
                bytes[telling_place(random, bytes)] = random.chance(2) ? 0xFF : random.byte();
                break;
            case 3: bytes.resize(any_place(random, bytes)); break;
            case 4: splice(random, bytes, other); break;
            case 5: edit_length(random, bytes); break;
            case 6: edit_marker(random, bytes); break;
            default: remove_range(random, bytes); break;
        }
    }
    // A copy of exactly its size: reading one byte too many is noticed.
    return Bytes(bytes.begin(), bytes.end());
}

}  // namespace testing
