#include "orientation.h"

#include <cstdlib>

#include "coefficient_maker.h"
#include "exif_maker.h"
#include "rewrite.h"

namespace {

using namespace testing;
using slip::Coefficients;
using slip::Status;

// What a viewer does with each orientation, pixel by pixel, from the definition of the tag: where
// row 0 and column 0 of the stored picture belong.
Image upright(const Image& in, int orientation) {
    const bool swap = orientation >= 5;
    Image out = swap ? make_image(in.height, in.width) : make_image(in.width, in.height);
    for (int y = 0; y < in.height; ++y) {
        for (int x = 0; x < in.width; ++x) {
            const int right = in.width - 1 - x, bottom = in.height - 1 - y;
            int to_x = x, to_y = y;
            switch (orientation) {
                case 2: to_x = right; break;
                case 3: to_x = right, to_y = bottom; break;
                case 4: to_y = bottom; break;
                case 5: to_x = y, to_y = x; break;
                case 6: to_x = bottom, to_y = x; break;
                case 7: to_x = bottom, to_y = right; break;
                case 8: to_x = y, to_y = right; break;
                default: break;
            }
            std::copy_n(in.at(x, y), 3, out.at(to_x, to_y));
        }
    }
    return out;
}

Image pixels_of(const Coefficients& picture) { return libjpeg_decode(slip::write_jpeg(picture)); }

int largest_difference(const Image& a, const Image& b) {
    if (a.width != b.width || a.height != b.height) return 256;
    int largest = 0;
    for (std::size_t i = 0; i < a.pixels.size(); ++i) {
        largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
    }
    return largest;
}

int inverse_of(int orientation) {
    return orientation == 6 ? 8 : orientation == 8 ? 6 : orientation;
}

bool upsamples(const Sampling& sampling) {
    const std::string name = sampling.name;
    return name != "gray" && name != "444" && name != "all two";
}

// Whole MCUs in both directions, so that every turn is allowed.
void turned_pictures_look_turned() {
    Random random(70);
    for (int s = 0; s < kUsualSamplings; ++s) {
        for (int orientation = 1; orientation <= 8; ++orientation) {
            JpegOptions options;
            options.sampling = kSamplings[s];
            options.width = 32 * random.between(1, 4);
            options.height = 32 * random.between(1, 3);
            options.quality = 90;
            check::looking_at(describe(options) + ", orientation " + std::to_string(orientation));
            const Coefficients source = coefficients_of_file(make_jpeg(options, random));
            Coefficients turned = source;
            CHECK(slip::apply_orientation(turned, orientation));
            const int difference =
                largest_difference(pixels_of(turned), upright(pixels_of(source), orientation));
            // Turning upside down is exact. Otherwise the transform rounds between its two passes,
            // columns before rows; chroma filters round left and right differently.
            const bool exact = (orientation == 1 || orientation == 4) && !upsamples(kSamplings[s]);
            CHECK(difference <= (exact ? 0 : upsamples(kSamplings[s]) ? 6 : 3));
        }
    }
}

// The same without the rounding: turning back gives every coefficient and table back.
void turning_back_gives_everything_back() {
    Random random(71);
    for (const Sampling& sampling : kSamplings) {
        for (int orientation = 1; orientation <= 8; ++orientation) {
            const Coefficients source = random_coefficients(sampling, 32 * random.between(1, 3),
                                                            32 * random.between(1, 3), {}, random);
            Coefficients turned = source;
            check::looking_at(std::string(sampling.name) + ", orientation " +
                              std::to_string(orientation));
            CHECK(slip::apply_orientation(turned, orientation));
            CHECK((orientation >= 5 ? source.frame.height : source.frame.width) ==
                  turned.frame.width);
            CHECK(orientation == 1 || !same_coefficients(source, turned));
            CHECK(slip::apply_orientation(turned, inverse_of(orientation)));
            CHECK(same_coefficients(source, turned));
        }
    }
}

// Coefficient by coefficient: a swap transposes blocks and tables, a mirror negates odd
// frequencies.
void coefficients_move_as_they_should() {
    Random random(72);
    const Coefficients source = random_coefficients(kSamplings[0], 16, 24, {}, random);
    Coefficients transposed = source, mirrored = source, flipped = source;
    CHECK(slip::apply_orientation(transposed, 5) && slip::apply_orientation(mirrored, 2) &&
          slip::apply_orientation(flipped, 4));
    for (int y = 0; y < 3; ++y) {
        for (int x = 0; x < 2; ++x) {
            for (int k = 0; k < 64; ++k) {
                const int u = k % 8, v = k / 8, value = source.planes[0].block(y, x)[k];
                CHECK(transposed.planes[0].block(x, y)[8 * u + v] == value);
                CHECK(mirrored.planes[0].block(y, 1 - x)[k] == (u % 2 ? -value : value));
                CHECK(flipped.planes[0].block(2 - y, x)[k] == (v % 2 ? -value : value));
                CHECK(transposed.planes[0].quant[8 * u + v] == source.planes[0].quant[k]);
            }
        }
    }
}

// An edge with an incomplete MCU cannot move to the left or the top.
void incomplete_edges_refuse() {
    Random random(73);
    struct Case {
        int width, height;
        bool allowed[9];
    };
    const Case cases[] = {
        {64, 64, {false, true, true, true, true, true, true, true, true}},
        {60, 64, {false, true, false, false, true, true, true, false, false}},
        {64, 60, {false, true, true, false, false, true, false, false, true}},
        {60, 60, {false, true, false, false, false, true, false, false, false}},
    };
    for (const Sampling& sampling : kSamplings) {
        for (const Case& c : cases) {
            for (int orientation = 1; orientation <= 8; ++orientation) {
                check::looking_at(std::string(sampling.name) + " " + std::to_string(c.width) + "x" +
                                  std::to_string(c.height) + ", orientation " +
                                  std::to_string(orientation));
                Coefficients picture = random_coefficients(sampling, c.width, c.height, {}, random);
                picture.markers = exif_with_orientation(orientation, false);
                const Coefficients before = picture;
                CHECK(slip::apply_orientation(picture, orientation) == c.allowed[orientation]);
                if (c.allowed[orientation]) {
                    CHECK(slip::find_orientation(picture.markers) == 1);
                    CHECK(same_coefficients(picture, coefficients_of_record(record_of(picture))));
                } else {
                    CHECK(same_coefficients(picture, before) && picture.markers == before.markers);
                }
            }
        }
    }
}

// The factor that matters is the MCU's: 8 pixels are enough for 4:4:4, 4:2:0 needs 16.
void allowed_is_a_matter_of_mcus() {
    Random random(74);
    const auto allowed = [&](int sampling, int width, int height, int orientation) {
        Coefficients picture = random_coefficients(kSamplings[sampling], width, height, {}, random);
        return slip::apply_orientation(picture, orientation);
    };
    CHECK(allowed(1, 24, 8, 2) && !allowed(3, 24, 8, 2) && allowed(3, 32, 8, 2));
    CHECK(allowed(2, 16, 8, 4) && !allowed(4, 16, 8, 4) && allowed(4, 16, 16, 4));
    CHECK(allowed(2, 16, 8, 3) && !allowed(2, 8, 8, 3));
    CHECK(allowed(2, 16, 8, 7) && !allowed(2, 8, 16, 8) && allowed(2, 8, 16, 6));
}

void orientation_is_found() {
    for (const bool big_endian : {false, true}) {
        for (int orientation = 1; orientation <= 8; ++orientation) {
            for (const int gap : {0, 1, 100}) {
                CHECK(slip::find_orientation(exif_with_orientation(orientation, big_endian, gap)) ==
                      orientation);
            }
        }
        for (const int nonsense : {0, 9, 255, 256, 65535}) {
            CHECK(slip::find_orientation(exif_with_orientation(nonsense, big_endian)) == 1);
        }
    }
    CHECK(slip::find_orientation({}) == 1);
}

void the_first_exif_counts() {
    Bytes markers = marker_segment(0xFE, {'h', 'i'});
    const auto add = [&](const Bytes& more) {
        markers.insert(markers.end(), more.begin(), more.end());
    };
    add(marker_segment(0xE1, Bytes(40, 'x')));  // XMP lives in APP1 too
    add(marker_segment(0xE1, {}));
    add(exif_with_orientation(6, true));
    add(exif_with_orientation(3, false));
    CHECK(slip::find_orientation(markers) == 6);
}

Bytes directory(unsigned offset, unsigned count, unsigned tag, unsigned type, unsigned values) {
    TiffWriter tiff(true);
    tiff.u32(offset);
    tiff.u16(count);
    tiff.entry(tag, type, values, 6);
    return exif_segment(tiff.bytes());
}

void hostile_exif() {
    CHECK(slip::find_orientation(directory(8, 1, 0x0112, 3, 1)) == 6);
    CHECK(slip::find_orientation(directory(8, 65535, 0x0112, 3, 1)) == 6);
    CHECK(slip::find_orientation(directory(8, 65535, 0x0111, 3, 1)) == 1);  // runs out of entries
    CHECK(slip::find_orientation(directory(8, 0, 0x0112, 3, 1)) == 1);
    CHECK(slip::find_orientation(directory(8, 1, 0x0112, 4, 1)) == 1);  // not a short
    CHECK(slip::find_orientation(directory(8, 1, 0x0112, 3, 2)) == 1);  // two of them
    for (const unsigned offset :
         {0u, 1u, 7u, 9u, 21u, 22u, 23u, 0x7FFFFFFFu, 0xFFFFFFF8u, 0xFFFFFFFFu}) {
        CHECK(slip::find_orientation(directory(offset, 1, 0x0112, 3, 1)) == 1);
    }
    TiffWriter wrong(true);
    wrong.u32(8);
    Bytes bytes = wrong.bytes();
    bytes[3] = '+';
    CHECK(slip::find_orientation(exif_segment(bytes)) == 1);
    for (std::size_t size = 0; size < 8; ++size) {
        CHECK(slip::find_orientation(exif_segment(
                  Bytes(wrong.bytes().begin(),
                        wrong.bytes().begin() + static_cast<std::ptrdiff_t>(size)))) == 1);
    }
}

// Cut anywhere and with every byte changed, it is found or not, but nothing beyond its end is read.
void damaged_exif_is_read_safely() {
    for (const bool big_endian : {false, true}) {
        const Bytes sound = exif_with_orientation(5, big_endian, 3);
        for (std::size_t size = 0; size < sound.size(); ++size) {
            Bytes cut(sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(size));
            CHECK(slip::find_orientation(cut) == 1);  // its length says that more follows
            if (size < 4) continue;
            cut[2] = static_cast<std::uint8_t>((size - 2) >> 8);
            cut[3] = static_cast<std::uint8_t>(size - 2);
            const int found = slip::find_orientation(cut);
            CHECK(found == 1 || found == 5);
        }
        Random random(75);
        for (int round = 0; round < 4000; ++round) {
            Bytes damaged = sound;
            for (int i = random.between(1, 3); i > 0; --i) {
                damaged[random.between(0, static_cast<int>(sound.size()) - 1)] = random.byte();
            }
            const int found = slip::find_orientation(damaged);
            CHECK(found >= 1 && found <= 8);
        }
    }
}

void rewriting_turns_where_it_can() {
    Random random(76);
    for (int orientation = 1; orientation <= 8; ++orientation) {
        for (const int width : {48, 50}) {
            JpegOptions options;
            options.sampling = kSamplings[3];
            options.width = width;
            options.height = 32;
            options.markers = exif_with_orientation(orientation, orientation % 2);
            check::looking_at(describe(options) + ", orientation " + std::to_string(orientation));
            const Bytes file = make_jpeg(options, random);
            const slip::Rewritten kept = slip::rewrite_jpeg(file.data(), file.size(), false);
            CHECK(kept.status == Status::ok && kept.orientation == orientation && !kept.oriented);
            CHECK(kept.width == width && kept.height == 32);
            const slip::Rewritten turned = slip::rewrite_jpeg(file.data(), file.size(), true);
            const bool can =
                width == 48 || orientation == 4 || orientation == 5 || orientation == 6;
            CHECK(turned.status == Status::ok && turned.oriented == (can && orientation > 1));
            CHECK(turned.orientation == (can ? 1 : orientation));
            const bool swapped = turned.oriented && orientation >= 5;
            CHECK(turned.width == (swapped ? 32 : width) &&
                  turned.height == (swapped ? width : 32));
            const Coefficients packed = coefficients_of_record(turned.record);
            CHECK(slip::find_orientation(packed.markers) == turned.orientation);
            CHECK(packed.frame.width == turned.width && packed.frame.height == turned.height);
        }
    }
}

}  // namespace

int main() {
    check::run("turned pictures look turned", turned_pictures_look_turned);
    check::run("turning back gives everything back", turning_back_gives_everything_back);
    check::run("coefficients move as they should", coefficients_move_as_they_should);
    check::run("incomplete edges refuse", incomplete_edges_refuse);
    check::run("allowed is a matter of MCUs", allowed_is_a_matter_of_mcus);
    check::run("orientation is found", orientation_is_found);
    check::run("the first EXIF counts", the_first_exif_counts);
    check::run("hostile EXIF", hostile_exif);
    check::run("damaged EXIF is read safely", damaged_exif_is_read_safely);
    check::run("rewriting turns where it can", rewriting_turns_where_it_can);
    return check::finish();
}
