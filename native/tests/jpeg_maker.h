// JPEG files of every kind, made with libjpeg, and libjpeg's own decoding of them to compare with.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" {
#include <jpeglib.h>
}

#include "coefficients.h"
#include "random.h"

namespace testing {

using slip::Bytes;

struct Sampling {
    const char* name;
    int components;
    std::array<int, 3> h, v;
};

// The usual ones first, then those that are legal and rare.
inline constexpr Sampling kSamplings[] = {
    {"gray", 1, {1, 1, 1}, {1, 1, 1}},    {"444", 3, {1, 1, 1}, {1, 1, 1}},
    {"422", 3, {2, 1, 1}, {1, 1, 1}},     {"420", 3, {2, 1, 1}, {2, 1, 1}},
    {"440", 3, {1, 1, 1}, {2, 1, 1}},     {"411", 3, {4, 1, 1}, {1, 1, 1}},
    {"441", 3, {1, 1, 1}, {4, 1, 1}},     {"410", 3, {4, 1, 1}, {2, 1, 1}},
    {"mixed", 3, {2, 2, 1}, {2, 1, 2}},   {"mixed2", 3, {2, 1, 2}, {2, 2, 1}},
    {"halves", 3, {4, 2, 1}, {1, 1, 1}},  {"halves down", 3, {1, 1, 1}, {4, 2, 1}},
    {"cross", 3, {1, 2, 1}, {2, 1, 1}},   {"fine chroma", 3, {1, 2, 1}, {1, 2, 1}},
    {"all two", 3, {2, 2, 2}, {1, 1, 1}},
};
inline constexpr int kUsualSamplings = 6;

enum class Scans { one, separate, progressive };

struct JpegOptions {
    int width = 16, height = 16;
    Sampling sampling = kSamplings[1];
    int quality = 85;
    Scans scans = Scans::one;
    bool optimize = false;
    bool arithmetic = false;
    bool rgb = false;          // components are red, green and blue
    bool wide_quant = false;   // quantization steps beyond 8 bits
    int restart_interval = 0;  // MCUs
    Bytes markers;             // whole APPn and COM segments
};

struct Image {
    int width = 0, height = 0;
    Bytes pixels;  // RGB

    const std::uint8_t* at(int x, int y) const {
        return pixels.data() + (static_cast<std::size_t>(y) * width + x) * 3;
    }
    std::uint8_t* at(int x, int y) {
        return pixels.data() + (static_cast<std::size_t>(y) * width + x) * 3;
    }
};

inline Image make_image(int width, int height) {
    return {width, height, Bytes(static_cast<std::size_t>(width) * height * 3)};
}

// Waves, an edge and some noise: every kind of block appears.
inline Image random_image(int width, int height, Random& random) {
    Image image = make_image(width, height);
    const double fx = random.between(1, 60) / 100.0, fy = random.between(1, 60) / 100.0;
    const int edge = random.between(0, width), noise = random.between(0, 60);
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
            for (int c = 0; c < 3; ++c) {
                const double wave = 128 + 90 * std::sin(fx * x + c) * std::cos(fy * y - c);
                const int jump = x < edge ? 0 : 50 * (c - 1);
                const int value = static_cast<int>(wave) + jump + random.between(-noise, noise);
                image.at(x, y)[c] = static_cast<std::uint8_t>(std::clamp(value, 0, 255));
            }
        }
    }
    return image;
}

inline void write_marker_segments(jpeg_compress_struct& info, const Bytes& markers) {
    for (std::size_t pos = 0; pos + 4 <= markers.size();) {
        const unsigned length = markers[pos + 2] << 8 | markers[pos + 3];
        jpeg_write_marker(&info, markers[pos + 1], markers.data() + pos + 4, length - 2);
        pos += 2 + length;
    }
}

inline void set_options(jpeg_compress_struct& info, const JpegOptions& options,
                        std::vector<jpeg_scan_info>& scans) {
    const bool gray = options.sampling.components == 1;
    jpeg_set_defaults(&info);
    jpeg_set_colorspace(&info, gray ? JCS_GRAYSCALE : options.rgb ? JCS_RGB : JCS_YCbCr);
    jpeg_set_quality(&info, options.quality, !options.wide_quant);
    if (options.wide_quant) jpeg_set_linear_quality(&info, 400, FALSE);
    for (int c = 0; c < info.num_components; ++c) {
        info.comp_info[c].h_samp_factor = options.sampling.h[c];
        info.comp_info[c].v_samp_factor = options.sampling.v[c];
    }
    info.optimize_coding = options.optimize;
    info.arith_code = options.arithmetic;
    info.restart_interval = static_cast<unsigned>(options.restart_interval);
    if (options.scans == Scans::progressive) jpeg_simple_progression(&info);
    if (options.scans == Scans::separate) {
        for (int c = 0; c < info.num_components; ++c) scans.push_back({1, {c}, 0, 63, 0, 0});
        info.scan_info = scans.data();
        info.num_scans = static_cast<int>(scans.size());
    }
}

inline void keep_quiet(j_common_ptr, int) {}

// An error inside libjpeg ends the program: these files are meant to be made.
inline Bytes make_jpeg(const JpegOptions& options, const Image& image) {
    jpeg_compress_struct info;
    jpeg_error_mgr errors;
    info.err = jpeg_std_error(&errors);
    errors.emit_message = keep_quiet;
    jpeg_create_compress(&info);
    unsigned char* buffer = nullptr;
    unsigned long size = 0;
    jpeg_mem_dest(&info, &buffer, &size);
    info.image_width = static_cast<JDIMENSION>(options.width);
    info.image_height = static_cast<JDIMENSION>(options.height);
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    std::vector<jpeg_scan_info> scans;
    set_options(info, options, scans);
    jpeg_start_compress(&info, TRUE);
    write_marker_segments(info, options.markers);
    while (info.next_scanline < info.image_height) {
        auto* row = const_cast<JSAMPLE*>(image.at(0, static_cast<int>(info.next_scanline)));
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    Bytes file(buffer, buffer + size);
    jpeg_destroy_compress(&info);
    std::free(buffer);
    return file;
}

inline Bytes make_jpeg(const JpegOptions& options, Random& random) {
    return make_jpeg(options, random_image(options.width, options.height, random));
}

// What libjpeg makes of a whole, sound file: "islow" and fancy upsampling, its defaults.
inline Image libjpeg_decode(const Bytes& file) {
    jpeg_decompress_struct info;
    jpeg_error_mgr errors;
    info.err = jpeg_std_error(&errors);
    errors.emit_message = keep_quiet;
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, file.data(), file.size());
    jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
    Image image =
        make_image(static_cast<int>(info.output_width), static_cast<int>(info.output_height));
    while (info.output_scanline < info.output_height) {
        JSAMPROW row = image.at(0, static_cast<int>(info.output_scanline));
        jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
    return image;
}

inline Image crop(const Image& image, int x, int y, int width, int height) {
    Image out = make_image(width, height);
    for (int row = 0; row < height; ++row) {
        std::copy_n(image.at(x, y + row), 3 * width, out.at(0, row));
    }
    return out;
}

inline Image flip(const Image& image, bool mirror, bool upside_down) {
    Image out = make_image(image.width, image.height);
    for (int y = 0; y < image.height; ++y) {
        for (int x = 0; x < image.width; ++x) {
            const int from_x = mirror ? image.width - 1 - x : x;
            const int from_y = upside_down ? image.height - 1 - y : y;
            std::copy_n(image.at(from_x, from_y), 3, out.at(x, y));
        }
    }
    return out;
}

inline std::string describe(const JpegOptions& options) {
    static const char* const scans[] = {"one scan", "separate scans", "progressive"};
    return std::string(options.sampling.name) + ", " + std::to_string(options.width) + "x" +
           std::to_string(options.height) + ", quality " + std::to_string(options.quality) + ", " +
           scans[static_cast<int>(options.scans)] + (options.optimize ? ", optimized" : "") +
           (options.rgb ? ", RGB" : "") + (options.wide_quant ? ", 16-bit quantization" : "") +
           ", restart " + std::to_string(options.restart_interval);
}

// Every kind in turn: sampling, scans, restart markers, tables, colour.
inline JpegOptions random_options(Random& random, int largest) {
    JpegOptions options;
    options.width = random.between(1, largest);
    options.height = random.between(1, largest);
    options.sampling = kSamplings[random.between(0, static_cast<int>(std::size(kSamplings)) - 1)];
    options.quality = random.between(5, 100);
    options.scans = static_cast<Scans>(random.between(0, 2));
    options.optimize = random.chance(2);
    options.rgb = random.chance(6);
    options.wide_quant = random.chance(8);
    options.restart_interval = random.chance(3) ? random.between(1, 9) : 0;
    return options;
}

}  // namespace testing
