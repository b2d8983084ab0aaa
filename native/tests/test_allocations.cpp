// After the largest picture a thread decodes without allocating.
#include "allocations.h"
#include "check.h"
#include "engine.h"
#include "rewrite.h"

namespace {

using namespace testing;

constexpr int kLargest = 200;

struct Job {
    Bytes file, record;
    slip::Box whole;
};

std::vector<Job> make_jobs(Random& random) {
    std::vector<Job> jobs;
    for (int i = 0; i < kUsualSamplings; ++i) {
        JpegOptions options;
        options.width = options.height = kLargest;
        options.sampling = kSamplings[i];
        Job job{make_jpeg(options, random), {}, {0, 0, kLargest, kLargest}};
        job.record = slip::rewrite_jpeg(job.file.data(), job.file.size(), false).record;
        jobs.push_back(std::move(job));
    }
    return jobs;
}

// Every way through the engine, whole and enlarged as far as the later crops go.
void warm_up(const std::vector<Job>& jobs, Image& image, slip::Scratch& scratch) {
    for (const Job& job : jobs) {
        for (int filter = 0; filter <= 4; ++filter) {
            for (int order = 0; order <= 2; ++order) {
                const Shape shape{kLargest - 1, kLargest - 1, static_cast<slip::Filter>(filter),
                                  static_cast<slip::PassOrder>(order)};
                for (const slip::Coding coding : {slip::Coding::file, slip::Coding::tiles}) {
                    const Bytes& data = coding == slip::Coding::file ? job.file : job.record;
                    CHECK(slip::decode_picture({data.data(), data.size(), coding}, job.whole,
                                               target_of(image, shape),
                                               scratch) == slip::Status::ok);
                }
            }
        }
    }
}

void crops_allocate_nothing() {
    Random random(1);
    const std::vector<Job> jobs = make_jobs(random);
    const slip::ScratchPtr scratch = slip::make_scratch();
    Image image = make_image(kLargest, kLargest);
    warm_up(jobs, image, *scratch);
    // Shrinking a long side to almost nothing takes the most weights.
    for (const auto& [width, height] : {std::pair{1, kLargest - 1}, {kLargest - 1, 1}, {1, 1}}) {
        for (int order = 0; order <= 2; ++order) {
            const Shape shape{width, height, slip::Filter::lanczos,
                              static_cast<slip::PassOrder>(order)};
            const Bytes& data = jobs[1].record;
            slip::decode_picture({data.data(), data.size(), slip::Coding::tiles}, jobs[1].whole,
                                 target_of(image, shape), *scratch);
        }
    }
    allocations().reset();
    for (int i = 0; i < 600; ++i) {
        const Job& job = jobs[static_cast<std::size_t>(random.between(0, kUsualSamplings - 1))];
        const slip::Box box = random_box(random, kLargest, kLargest);
        const bool file = random.chance(2);
        const Bytes& data = file ? job.file : job.record;
        const slip::Coding coding = file ? slip::Coding::file : slip::Coding::tiles;
        const Shape shape = random_shape(random, kLargest - 1);
        CHECK(slip::decode_picture({data.data(), data.size(), coding}, box, target_of(image, shape),
                                   *scratch) == slip::Status::ok);
        CHECK(allocations().largest == 0);
    }
}

}  // namespace

int main() {
    if (!watch_allocations()) {
        std::printf("allocations can be watched in a sanitized build only\n");
        return 0;
    }
    check::run("crops allocate nothing after the largest", crops_allocate_nothing);
    return check::finish();
}
