// Pillow's resampling weights: which input pixels make an output pixel, and how much of each.
#pragma once

#include <cstdint>

#include "buffer.h"

namespace slip {

enum class Filter : int {
    nearest = 0,
    lanczos = 1,
    bilinear = 2,
    bicubic = 3,
    box = 4
};  // Pillow's numbers

inline bool is_filter(int number) { return number >= 0 && number <= 4; }

enum class Direction { across, down };

constexpr int kWeightBits = 22;
constexpr int kTapGroup = 4;      // taps are handled in fours
constexpr int kLongGroup = 16;    // or in sixteens, where a row shrinks a lot
constexpr int kOutputGroup = 16;  // a row's outputs are padded to this
constexpr int kWindow = 16;       // bytes of a row from which four outputs take four taps each

// Weights are also kept split into small parts, ready for the multiply-add instructions of the
// architecture.
#if defined(__aarch64__)
// Three unsigned bytes, for byte-wise dot products. Where some weight is negative all of them are
// kSplitBias larger, which the kernels take off again; otherwise they are four times as large, so
// that the result stands in a byte of its own.
constexpr std::int32_t kSplitBias = 1 << kWeightBits;
constexpr int kSplitShift = 2;
constexpr int kAcrossWords =
    12;  // per four outputs and group: low bytes of the four outputs' taps, middle, high
constexpr int kLongWords =
    12;  // per output and long group: low bytes of the sixteen taps, middle, high
constexpr int kDownWords =
    4;  // per output and group: low bytes of the four taps, middle, high, nothing
#else
// Two 16-bit numbers: weight = high * 2^kLowBits + low.
constexpr int kLowBits = 11;
constexpr int kAcrossWords =
    16;  // per four outputs and group: low halves of the four outputs' taps, high halves
constexpr int kLongWords =
    16;  // per output and long group: low halves of the sixteen taps, high halves
constexpr int kDownWords = 4;  // per output and group: low halves of the four taps, high halves
#endif

enum class Split {
    none,     // weights too large to be split
    windows,  // rows: four outputs at once, picked from one window
    runs,     // rows: each output by itself, sixteen taps at once
    columns,  // columns: four taps at once
};

// One direction of a resize of which only some outputs are wanted: `count` from `first` on, of
// `output` in all. They are made of `size` inputs from `begin` on, of `input` in all.
struct Stretch {
    int input, output;
    int first, count;
    int begin, size;
};

Stretch stretch_of(int input, int output, int first, int count, Filter filter);

// One direction of a resize. Output i is the sum over t of weights[i * taps + t] * input[first[i] +
// t], rounded at kWeightBits; inputs and outputs are counted from where the stretch has its first.
// `taps` is a multiple of kTapGroup, or of kLongGroup for runs; weights behind an output's last
// input are zero, and first + taps may reach beyond the input.
struct Axis {
    int output = 0;
    int taps = 0;
    bool identity = false;  // outputs equal inputs: no pass needed
    bool negative = false;  // some weights may be below zero
    Split way = Split::none;
    const std::int32_t* first = nullptr;
    const std::int32_t* weights = nullptr;
    const std::uint32_t* split = nullptr;
    // For windows, per four outputs: where their window starts, and which of its bytes are their
    // taps.
    const std::int32_t* base = nullptr;
    const std::uint8_t* pick = nullptr;

    // `mirror` turns the order of the outputs around. False: out of memory.
    bool prepare(const Stretch& stretch, Filter filter, Direction direction, bool mirror);

  private:
    Buffer memory_;
};

// Nearest neighbour: the input of every output, counted as in Axis, or -1.
bool nearest_positions(const Stretch& stretch, Buffer& positions);

}  // namespace slip
