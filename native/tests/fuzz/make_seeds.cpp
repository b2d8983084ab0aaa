// Writes sound files and records for the fuzzers to start from: make_seeds FILES_FOLDER
// RECORDS_FOLDER
#include <cstdio>

#include "../exif_maker.h"
#include "rewrite.h"

namespace {

using testing::Bytes;

bool save(const std::string& folder, int number, Bytes bytes) {
    bytes.resize(bytes.size() + 8,
                 static_cast<std::uint8_t>(number));  // what the fuzzers take their choices from
    const std::string path = folder + "/" + std::to_string(number);
    std::FILE* out = std::fopen(path.c_str(), "wb");
    if (!out) return false;
    const bool written = std::fwrite(bytes.data(), 1, bytes.size(), out) == bytes.size();
    return std::fclose(out) == 0 && written;
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 3) {
        std::fprintf(stderr, "usage: make_seeds FILES_FOLDER RECORDS_FOLDER\n");
        return 2;
    }
    testing::Random random(90);
    for (int i = 0; i < 60; ++i) {
        testing::JpegOptions options = testing::random_options(random, 40);
        options.sampling = testing::kSamplings[i % std::size(testing::kSamplings)];
        if (i % 3 == 0) options.markers = testing::exif_with_orientation(1 + i % 8, i % 2);
        const Bytes file = testing::make_jpeg(options, random);
        const slip::Rewritten rewritten = slip::rewrite_jpeg(file.data(), file.size(), false);
        if (!save(arguments[1], i, file) || !save(arguments[2], i, rewritten.record)) {
            std::perror("make_seeds");
            return 1;
        }
    }
    return 0;
}
