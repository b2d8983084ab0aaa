// One status per sample: what the caller learns when a picture cannot be read.
#pragma once

#include <cstdint>

namespace slip {

enum class Status : std::int32_t {
    ok = 0,
    unsupported = 1,  // a valid file that this engine leaves to Pillow
    corrupt = 2,
    checksum = 3,
    box = 4,
    memory = 5,
    // Details of `corrupt`, so that the message can say what is wrong.
    record_magic = 32,
    record_size = 33,
    record_header = 34,
    record_segments = 35,
    jpeg_header = 36,
    jpeg_truncated = 37,
    huffman_table = 38,
    huffman_code = 39,
    segment_overrun = 40,
    segment_leftover = 41,
    dimensions = 42,
    libjpeg = 43,
};

const char* status_text(Status status);

inline bool is_corrupt(Status status) {
    return status == Status::corrupt || static_cast<std::int32_t>(status) >= 32;
}

}  // namespace slip
