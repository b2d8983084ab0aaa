// Memory that a thread keeps between pictures: grows, never shrinks, is not initialized.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slip {

class Buffer {
  public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer();

    // Makes room for `size` bytes and drops the content; false if there is no memory. 64-byte
    // aligned, and 64 more bytes may be touched.
    bool reserve(std::size_t size) { return size <= size_ || grow(size); }
    std::uint8_t* data() const { return data_; }
    template <class T>
    T* as() const {
        return reinterpret_cast<T*>(data_);
    }

  private:
    bool grow(std::size_t size);

    std::uint8_t* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace slip
