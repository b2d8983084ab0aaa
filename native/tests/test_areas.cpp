#include "areas.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "check.h"
#include "random.h"

namespace {

constexpr std::size_t kStride = 24;

struct Areas {
    std::vector<std::uint32_t> words;
    std::vector<double> aspects;
    std::vector<std::int64_t> sizes, boxes;
    bool have_pixels;

    Areas(const std::vector<std::int64_t>& all_sizes, const slip::AreaRange& range,
          testing::Random& random)
        : sizes(all_sizes), boxes(2 * all_sizes.size()) {
        const std::size_t count = sizes.size() / 2;
        for (std::size_t i = 0; i < count * kStride; ++i)
            words.push_back(random.chance(9) ? 0xFFFFFFFFu
                                             : static_cast<std::uint32_t>(random.next()));
        const double low = std::log(range.ratio_low), high = std::log(range.ratio_high);
        for (std::size_t i = 0; i < count * slip::kAreaTries; ++i)
            aspects.push_back(std::exp(low + (high - low) * random.between(0, 1000) / 1000));
        have_pixels = slip::choose_areas(words.data(), kStride, aspects.data(), sizes.data(), count,
                                         range, boxes.data());
    }
};

void windows_lie_inside() {
    testing::Random random(1);
    const double step = std::ldexp(1.0, -32);
    const slip::AreaRange ranges[] = {{0.08, 0.92 * step, 0.75, 4.0 / 3},
                                      {0.9, 0.1 * step, 0.2, 0.3},
                                      {0.0, 9.0 * step, 0.01, 100.0}};
    for (int trial = 0; trial < 300; ++trial) {
        const auto count = static_cast<std::size_t>(random.between(0, 40));
        const int most = random.chance(2) ? 12 : 1 << 24;
        std::vector<std::int64_t> sizes(2 * count);
        for (std::int64_t& size : sizes) size = random.between(1, most);
        const Areas areas(sizes, ranges[trial % 3], random);
        bool have_pixels = true;
        for (std::size_t k = 0; k < 2 * count; ++k) {
            const std::int64_t at = areas.boxes[k], size = areas.boxes[2 * count + k];
            CHECK(at >= 0 && size >= 0 && at + size <= sizes[k]);
            have_pixels = have_pixels && size > 0;
        }
        CHECK(have_pixels == areas.have_pixels);
    }
}

// A picture that no try fits: the largest window of the nearest ratio, in the middle.
void the_middle_if_nothing_fits() {
    testing::Random random(2);
    const slip::AreaRange too_large{4.0, 0.0, 0.75, 4.0 / 3};
    const Areas areas({300, 90, 100, 100, 90, 300}, too_large, random);
    CHECK(areas.have_pixels);
    const std::vector<std::int64_t> expected{83, 0, 0, 0, 0, 83, 133, 90, 100, 100, 90, 133};
    CHECK(areas.boxes == expected);
    CHECK(!Areas({900, 1}, {4.0, 0.0, 0.1, 0.2}, random).have_pixels);
}

}  // namespace

int main() {
    check::run("windows lie inside", windows_lie_inside);
    check::run("the middle if nothing fits", the_middle_if_nothing_fits);
    return check::finish();
}
