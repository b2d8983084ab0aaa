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

constexpr int kWeightBits = 22;
constexpr int kTapGroup = 4;
constexpr int kGroupWords = 4;

// Weights are also kept split into small parts, ready for the multiply-add instructions of the
// architecture.
#if defined(__aarch64__)
// Three unsigned bytes, for byte-wise dot products. Where some weight is negative all of them are
// kSplitBias larger, which the kernels take off again.
constexpr std::int32_t kSplitBias = 1 << kWeightBits;
#else
// Two 16-bit numbers: weight = high * 2^kLowBits + low.
constexpr int kLowBits = 11;
#endif

// One direction of a resize. Output i is the sum over t of weights[i * taps + t] * input[first[i] +
// t], rounded at kWeightBits. `taps` is a multiple of kTapGroup; weights behind an output's last
// input are zero, and first + taps may reach beyond the input.
struct Axis {
    int input = 0, output = 0;
    int taps = 0;
    bool identity = false;    // output equals input: no pass needed
    bool negative = false;    // some weight is below zero
    bool split_fits = false;  // the weights are small enough to be split
    const std::int32_t* first = nullptr;
    const std::int32_t* weights = nullptr;
    // The split weights, kGroupWords words per output and group of four taps, the first tap in the
    // lowest bits. aarch64: the four low bytes, the four middle ones, the four high ones, nothing.
    // Elsewhere: the four low halves in two words, the four high halves in two words.
    const std::uint32_t* split = nullptr;

    bool prepare(int input_size, int output_size, Filter filter);  // false: out of memory

  private:
    Buffer memory_;
};

// Nearest neighbour: the input index of every output, or -1.
bool nearest_positions(int input, int output, Buffer& positions);

}  // namespace slip
