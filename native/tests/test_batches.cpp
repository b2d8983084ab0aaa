#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <vector>

#include "check.h"
#include "checksum.h"
#include "convert.h"
#include "engine.h"
#include "gather.h"
#include "isa.h"
#include "read_file.h"

namespace {

using namespace testing;
using slip::Status;

struct Converters {
    decltype(&slip::separate_pixels) separate;
    decltype(&slip::look_up_pixels) look_up;
};

std::vector<Converters> converters() {
    std::vector<Converters> all{{slip::separate_pixels, slip::look_up_pixels},
                                {slip::baseline::separate_pixels, slip::baseline::look_up_pixels}};
#if defined(SLIP_HAS_MODERN)
    if (runs_modern()) all.push_back({slip::modern::separate_pixels, slip::modern::look_up_pixels});
#endif
    return all;
}

// Memory that ends where the pixels end, for every number of them.
void planes_of_any_number_of_pixels() {
    Random random(80);
    std::vector<float> tables(3 * 256);
    for (float& entry : tables) entry = static_cast<float>(random.between(-1000, 1000)) / 7;
    for (std::size_t count = 0; count <= 70; ++count) {
        check::looking_at(std::to_string(count) + " pixels");
        std::vector<std::uint8_t> pixels(3 * count);
        for (auto& byte : pixels) byte = random.byte();
        for (const Converters& convert : converters()) {
            std::vector<std::uint8_t> planes(3 * count);
            std::vector<float> entries(3 * count);
            convert.separate(pixels.data(), count, planes.data(), count);
            convert.look_up(pixels.data(), count, tables.data(), entries.data(), count);
            for (std::size_t i = 0; i < count; ++i) {
                for (std::size_t c = 0; c < 3; ++c) {
                    CHECK(planes[c * count + i] == pixels[3 * i + c]);
                    CHECK(entries[c * count + i] == tables[256 * c + pixels[3 * i + c]]);
                }
            }
        }
    }
}

void payloads_are_copied_and_checked() {
    Random random(81);
    for (const std::size_t size : {0, 1, 7, 4096, 24 * 1024, 24 * 1024 + 1, 100'000}) {
        check::looking_at(std::to_string(size) + " bytes");
        Bytes from(size), to(size, 77);
        for (auto& byte : from) byte = random.byte();
        CHECK(slip::copy_payload(from.data(), size, nullptr, to.data()) == Status::ok);
        CHECK(to == from);
        std::uint32_t sum = slip::crc32c(from.data(), size);
        to.assign(size, 77);
        CHECK(slip::copy_payload(from.data(), size, &sum, to.data()) == Status::ok);
        CHECK(to == from);
        sum ^= 1;
        CHECK(slip::copy_payload(from.data(), size, &sum, to.data()) == Status::checksum);
        CHECK(to == Bytes(size, 0));
    }
}

class Folder {
  public:
    Folder() { CHECK(mkdtemp(path_) != nullptr); }
    ~Folder() {
        for (const std::string& name : made_) std::remove(name.c_str());
        rmdir(path_);
    }
    std::string path() const { return path_; }
    std::string operator/(const std::string& name) {
        made_.push_back(path() + "/" + name);
        return made_.back();
    }

  private:
    char path_[32] = "/tmp/slipstream-test-XXXXXX";
    std::vector<std::string> made_;
};

void files_are_read_whole() {
    Random random(82);
    Folder folder;
    for (const std::size_t size : {0, 1, 4095, 4096, 4097, 1'000'003}) {
        Bytes content(size);
        for (auto& byte : content) byte = random.byte();
        const std::string path = folder / std::to_string(size);
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(content.data()),
                   static_cast<std::streamsize>(size));
        const slip::FileBytes file = slip::read_file(path.c_str());
        CHECK(file.error == 0 && file.size == size);
        CHECK(Bytes(file.data.get(), file.data.get() + file.size) == content);
    }
}

int next_descriptor() {
    const int number = open("/dev/null", O_RDONLY);
    close(number);
    return number;
}

void what_is_no_file_has_its_errno() {
    Folder folder;
    const std::string pipe = folder / "pipe";
    CHECK(mkfifo(pipe.c_str(), 0600) == 0);
    const int before = next_descriptor();
    CHECK(slip::read_file((folder.path() + "/none").c_str()).error == ENOENT);
    CHECK(slip::read_file(folder.path().c_str()).error == EISDIR);
    CHECK(slip::read_file(pipe.c_str()).error == EINVAL);
    CHECK(slip::read_file("/dev/zero").error == EINVAL);
    CHECK(slip::read_file("").error == ENOENT);
    CHECK(next_descriptor() == before);
}

// Says that it has no bytes, and has some: as a file that grows.
void a_file_may_have_more_bytes_than_it_said() {
    const slip::FileBytes file = slip::read_file("/proc/self/maps");
    if (file.error == ENOENT) return;  // no Linux
    CHECK(file.error == 0 && file.size > 100);
}

void sizes_of_jpegs() {
    Random random(83);
    for (int round = 0; round < 40; ++round) {
        const JpegOptions options = random_options(random, 100);
        const Bytes file = make_jpeg(options, random);
        slip::PictureSize size;
        CHECK(slip::find_jpeg_size(file.data(), file.size(), size));
        CHECK(size.width == options.width && size.height == options.height);
        for (std::size_t end = 0; end < file.size() && end < 700; ++end) {
            const Bytes part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(end));
            slip::PictureSize of_part;
            if (slip::find_jpeg_size(part.data(), part.size(), of_part))
                CHECK(of_part.width == options.width && of_part.height == options.height);
        }
        Bytes damaged = file;
        for (int i = 0; i < 200; ++i) {
            damaged[static_cast<std::size_t>(random.between(2, 199))] = random.byte();
            slip::find_jpeg_size(damaged.data(), damaged.size(), size);
        }
    }
}

}  // namespace

int main() {
    check::run("planes of any number of pixels", planes_of_any_number_of_pixels);
    check::run("payloads are copied and checked", payloads_are_copied_and_checked);
    check::run("files are read whole", files_are_read_whole);
    check::run("what is no file has its errno", what_is_no_file_has_its_errno);
    check::run("a file may have more bytes than it said", a_file_may_have_more_bytes_than_it_said);
    check::run("sizes of JPEGs", sizes_of_jpegs);
    return check::finish();
}
