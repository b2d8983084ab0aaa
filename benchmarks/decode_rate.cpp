// How fast crops decode from tile records, against libjpeg-turbo decoding whole pictures: same
// photos, same crops, same threads, interleaved.
//   decode_rate FOLDER [ROUNDS]
// Prints one JSON object: seconds per pass over the photos, the median of the rounds.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "checksum.h"
#include "decode.h"
#include "pool.h"
#include "rewrite.h"

extern "C" {
#include <jpeglib.h>
}

namespace {

struct Photo {
    slip::Bytes file, record;
    int width, height;
    std::uint32_t checksum;
};

slip::Bytes read_file(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return slip::Bytes(std::istreambuf_iterator<char>(in), {});
}

// torchvision's RandomResizedCrop with its defaults.
slip::Box random_resized_crop(int width, int height, std::mt19937& random) {
    std::uniform_real_distribution<double> unit(0, 1);
    for (int attempt = 0; attempt < 10; ++attempt) {
        const double area = width * height * (0.08 + 0.92 * unit(random));
        const double ratio =
            std::exp(std::log(3 / 4.) + unit(random) * (std::log(4 / 3.) - std::log(3 / 4.)));
        const int w = static_cast<int>(std::lround(std::sqrt(area * ratio)));
        const int h = static_cast<int>(std::lround(std::sqrt(area / ratio)));
        if (w > 0 && w <= width && h > 0 && h <= height) {
            return {static_cast<int>(unit(random) * (width - w + 1)),
                    static_cast<int>(unit(random) * (height - h + 1)), w, h};
        }
    }
    return {0, 0, width, height};
}

thread_local std::vector<unsigned char> pixels;

void open_photo(jpeg_decompress_struct& info, jpeg_error_mgr& errors, const slip::Bytes& file) {
    info.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, file.data(), file.size());
    jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
}

void read_lines(jpeg_decompress_struct& info, int count) {
    const std::size_t stride = std::size_t{3} * info.output_width;
    if (pixels.size() < stride * count) pixels.resize(stride * count);
    for (int y = 0; y < count;) {
        JSAMPROW rows[8];
        const int n = std::min(8, count - y);
        for (int r = 0; r < n; ++r) rows[r] = pixels.data() + (y + r) * stride;
        y += static_cast<int>(jpeg_read_scanlines(&info, rows, n));
    }
}

void libjpeg_whole(const Photo& photo) {
    jpeg_decompress_struct info;
    jpeg_error_mgr errors;
    open_photo(info, errors, photo.file);
    read_lines(info, static_cast<int>(info.output_height));
    jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
}

void libjpeg_crop(const Photo& photo, const slip::Box& box) {
    jpeg_decompress_struct info;
    jpeg_error_mgr errors;
    open_photo(info, errors, photo.file);
    JDIMENSION x = static_cast<JDIMENSION>(box.x), width = static_cast<JDIMENSION>(box.width);
    jpeg_crop_scanline(&info, &x, &width);
    if (box.y) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(box.y));
    read_lines(info, box.height);
    jpeg_abort_decompress(&info);
    jpeg_destroy_decompress(&info);
}

slip::Scratch& scratch() {
    thread_local slip::ScratchPtr mine = slip::make_scratch();
    return *mine;
}

void ours(const slip::Bytes& data, slip::Coding coding, const slip::Box& box, int width,
          int height) {
    const std::size_t bytes = std::size_t{3} * width * height;
    if (pixels.size() < bytes) pixels.resize(bytes);
    const slip::Target target{
        pixels.data(), width, height, slip::Filter::bilinear, slip::PassOrder::horizontal_first,
        false,         false};
    const slip::Status status =
        slip::decode_picture({data.data(), data.size(), coding}, box, target, scratch());
    if (status != slip::Status::ok) {
        std::fprintf(stderr, "%s\n", slip::status_text(status));
        std::exit(1);
    }
}

double seconds(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return std::fprintf(stderr, "usage: decode_rate FOLDER [ROUNDS] [THREADS]\n"), 2;
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
    const int threads = argc > 3 ? std::atoi(argv[3]) : 2;
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
        paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<Photo> photos;
    std::size_t file_bytes = 0, record_bytes = 0;
    double megapixels = 0;
    for (const auto& path : paths) {
        slip::Bytes file = read_file(path);
        slip::Rewritten r = slip::rewrite_jpeg(file.data(), file.size(), false);
        if (r.status != slip::Status::ok) continue;
        file_bytes += file.size();
        record_bytes += r.record.size();
        megapixels += r.width * r.height / 1e6;
        const std::uint32_t checksum = slip::crc32c(r.record.data(), r.record.size());
        photos.push_back({std::move(file), std::move(r.record), r.width, r.height, checksum});
    }
    std::mt19937 random(7);
    std::vector<slip::Box> boxes;
    for (const Photo& p : photos) boxes.push_back(random_resized_crop(p.width, p.height, random));

    struct Case {
        const char* name;
        int threads;
        std::function<void(std::size_t)> work;
        std::vector<double> times;
    };
    const auto whole = [&](std::size_t i) { libjpeg_whole(photos[i]); };
    const auto crop = [&](std::size_t i) { libjpeg_crop(photos[i], boxes[i]); };
    const auto tiles = [&](std::size_t i) {
        ours(photos[i].record, slip::Coding::tiles, boxes[i], boxes[i].width, boxes[i].height);
    };
    const auto tiles_whole = [&](std::size_t i) {
        ours(photos[i].record, slip::Coding::tiles, {0, 0, photos[i].width, photos[i].height},
             photos[i].width, photos[i].height);
    };
    const auto file = [&](std::size_t i) {
        ours(photos[i].file, slip::Coding::file, boxes[i], boxes[i].width, boxes[i].height);
    };
    const auto ready = [&](std::size_t i) {
        if (slip::crc32c(photos[i].record.data(), photos[i].record.size()) != photos[i].checksum)
            std::exit(1);
        ours(photos[i].record, slip::Coding::tiles, boxes[i], 224, 224);
    };
    const auto file_ready = [&](std::size_t i) {
        ours(photos[i].file, slip::Coding::file, boxes[i], 224, 224);
    };
    std::vector<Case> cases = {
        {"libjpeg_whole_1", 1, whole, {}},   {"libjpeg_crop_1", 1, crop, {}},
        {"tiles_crop_1", 1, tiles, {}},      {"tiles_whole_1", 1, tiles_whole, {}},
        {"file_crop_1", 1, file, {}},        {"tiles_224_1", 1, ready, {}},
        {"file_224_1", 1, file_ready, {}},   {"libjpeg_whole_n", threads, whole, {}},
        {"tiles_224_n", threads, ready, {}}, {"file_224_n", threads, file_ready, {}}};
    for (int round = 0; round <= rounds; ++round) {  // the first warms up
        for (Case& c : cases) {
            const double took =
                seconds([&] { slip::parallel_for(photos.size(), c.threads, c.work); });
            if (round > 0) c.times.push_back(took);
        }
    }
    std::printf(
        "{\"photos\": %zu, \"megapixels\": %.2f, \"file_bytes\": %zu, \"record_bytes\": %zu, "
        "\"threads\": %d, \"seconds\": {",
        photos.size(), megapixels, file_bytes, record_bytes, threads);
    for (std::size_t i = 0; i < cases.size(); ++i) {
        auto& t = cases[i].times;
        std::nth_element(t.begin(), t.begin() + t.size() / 2, t.end());
        std::printf("%s\"%s\": %.5f", i ? ", " : "", cases[i].name, t[t.size() / 2]);
    }
    std::printf("}}\n");
}
