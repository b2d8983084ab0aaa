// Whole files into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace slip {

struct FreeDeleter {
    void operator()(std::uint8_t* data) const { std::free(data); }
};

struct FileBytes {
    std::unique_ptr<std::uint8_t, FreeDeleter> data;  // null if there are none
    std::size_t size = 0;
    int error = 0;  // errno; then there are no bytes
};

// All bytes that a regular file has when its end is reached, also if it grows or shrinks meanwhile.
FileBytes read_file(const char* path);

}  // namespace slip
