#include "read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace slip {
namespace {

class Descriptor {
  public:
    explicit Descriptor(const char* path) {
        // Without O_NONBLOCK a named pipe would keep us waiting for its writer.
        do number_ = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        while (number_ < 0 && errno == EINTR);
    }
    Descriptor(const Descriptor&) = delete;
    ~Descriptor() {
        if (number_ >= 0) close(number_);
    }

    int number() const { return number_; }

  private:
    int number_;
};

FileBytes failed(int error) {
    FileBytes file;
    file.error = error;
    return file;
}

bool resize(FileBytes& file, std::size_t room) {
    void* moved = std::realloc(file.data.get(), room);
    if (!moved) return false;
    (void)file.data.release();
    file.data.reset(static_cast<std::uint8_t*>(moved));
    return true;
}

}  // namespace

FileBytes read_file(const char* path) {
    const Descriptor descriptor(path);
    struct stat about;
    if (descriptor.number() < 0 || fstat(descriptor.number(), &about) != 0) return failed(errno);
    if (S_ISDIR(about.st_mode)) return failed(EISDIR);
    if (!S_ISREG(about.st_mode)) return failed(EINVAL);
    FileBytes file;
    // One byte more than the file has: a read that leaves room is followed by one that finds the
    // end, and nothing has to move.
    std::size_t room = static_cast<std::size_t>(about.st_size) + 1;
    if (!resize(file, room)) return failed(ENOMEM);
    for (;;) {
        const ssize_t got =
            read(descriptor.number(), file.data.get() + file.size, room - file.size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return failed(errno);
        if (got == 0) break;
        file.size += static_cast<std::size_t>(got);
        if (file.size == room) {
            room += room / 2 + 4096;
            if (!resize(file, room)) return failed(ENOMEM);
        }
    }
    // A file that has shrunk keeps no more memory than it needs.
    if (file.size < room / 2) resize(file, file.size + 1);
    return file;
}

}  // namespace slip
