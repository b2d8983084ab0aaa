// A fixed corpus of damaged files and records. Under the sanitizers this says: no crash, no read or
// write outside, no undefined behaviour, no large allocation for small data, no long wait.
#include <ctime>
#include <map>

#include "allocations.h"
#include "exif_maker.h"
#include "mutate.h"
#include "trials.h"

namespace {

using namespace testing;
using slip::Status;

constexpr int kFileMutations = 16'000;
constexpr int kRecordMutations = 16'000;
constexpr int kSources = 60;
constexpr double kMostSeconds = 5.0;  // of processor time for one mutation, under the sanitizers
constexpr std::size_t kMostPerByte = 2000;     // a single allocation, per byte of input …
constexpr std::size_t kMostAnyway = 64 << 20;  // … beyond this

struct Source {
    Bytes file, record;
};

std::vector<Source> make_sources() {
    Random random(80);
    std::vector<Source> sources;
    for (int i = 0; i < kSources; ++i) {
        JpegOptions options = random_options(random, i % 8 ? 48 : 110);
        options.sampling = kSamplings[i % std::size(kSamplings)];
        options.scans = static_cast<Scans>(i / 3 % 3);
        if (i % 2) options.markers = exif_with_orientation(1 + i % 8, i % 4 == 1);
        Source source{make_jpeg(options, random), {}};
        source.record = slip::rewrite_jpeg(source.file.data(), source.file.size(), false).record;
        CHECK(!source.record.empty());
        sources.push_back(std::move(source));
    }
    return sources;
}

double processor_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// How the mutations ended, and what the worst of them cost.
class Ledger {
  public:
    template <class Try>
    void enter(const std::string& what, const Bytes& bytes, Try&& attempt) {
        check::looking_at(what);
        allocations().reset();
        const double before = processor_seconds();
        const Trial trial = attempt();
        const double spent = processor_seconds() - before;
        CHECK(is_status(trial.status));
        CHECK(trial.sound);
        CHECK(spent < kMostSeconds);
        CHECK(allocations().largest <= kMostAnyway + kMostPerByte * bytes.size());
        longest_ = std::max(longest_, spent);
        largest_ = std::max(largest_, allocations().largest);
        ++endings_[trial.status];
        ++total_;
    }

    void print() const {
        for (const auto& [status, count] : endings_) {
            std::printf("     %6d  %s\n", count, slip::status_text(status));
        }
        std::printf("     %6d  in all; at most %.0f ms and an allocation of %.1f MB\n", total_,
                    1e3 * longest_, static_cast<double>(largest_) / 1e6);
    }

    int total() const { return total_; }
    int rejected() const { return total_ - ended(Status::ok); }
    int ended(Status status) const {
        const auto found = endings_.find(status);
        return found == endings_.end() ? 0 : found->second;
    }
    int kinds() const { return static_cast<int>(endings_.size()); }

  private:
    std::map<Status, int> endings_;
    int total_ = 0;
    double longest_ = 0;
    std::size_t largest_ = 0;
};

template <class Pick, class Try>
Ledger run_mutations(const std::vector<Source>& sources, int count, std::uint64_t seed, Pick&& pick,
                     Try&& attempt) {
    Ledger ledger;
    slip::ScratchPtr scratch = slip::make_scratch();
    for (int i = 0; i < count; ++i) {
        Random random(seed + static_cast<std::uint64_t>(i));
        const Bytes& sound = pick(sources[static_cast<std::size_t>(i) % sources.size()]);
        const Bytes& other =
            pick(sources[static_cast<std::size_t>(random.next() % sources.size())]);
        const Bytes bytes = mutate(sound, other, random);
        if (i % 50 == 0)
            scratch = slip::make_scratch();  // otherwise what one picture left meets the next
        ledger.enter("mutation " + std::to_string(i), bytes,
                     [&] { return attempt(bytes, random, *scratch); });
    }
    ledger.print();
    return ledger;
}

void damaged_files(const std::vector<Source>& sources) {
    const Ledger ledger = run_mutations(
        sources, kFileMutations, 0x1000'0000,
        [](const Source& s) -> const Bytes& { return s.file; }, try_file);
    CHECK(ledger.total() == kFileMutations);
    CHECK(ledger.rejected() > kFileMutations / 3);
    CHECK(ledger.ended(Status::ok) >
          kFileMutations / 20);  // damage that nobody can see is no error
    CHECK(ledger.kinds() >= 4);
}

void damaged_records(const std::vector<Source>& sources) {
    const Ledger ledger = run_mutations(
        sources, kRecordMutations, 0x2000'0000,
        [](const Source& s) -> const Bytes& { return s.record; }, try_record);
    CHECK(ledger.total() == kRecordMutations);
    CHECK(ledger.rejected() > kRecordMutations / 2);
    CHECK(ledger.ended(Status::ok) > kRecordMutations / 50);
    for (const Status status :
         {Status::record_magic, Status::record_size, Status::record_header, Status::record_segments,
          Status::huffman_code, Status::segment_overrun, Status::segment_leftover}) {
        CHECK(ledger.ended(status) > 0);
    }
}

void every_truncation(const std::vector<Source>& sources) {
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (const int number : {0, 7, 33}) {
        const Bytes& record = sources[static_cast<std::size_t>(number)].record;
        Random random(81);
        for (std::size_t size = 0; size < std::min<std::size_t>(record.size(), 1500); ++size) {
            check::looking_at("source " + std::to_string(number) + " cut to " +
                              std::to_string(size));
            const Bytes cut(record.begin(), record.begin() + static_cast<std::ptrdiff_t>(size));
            const Trial trial = try_record(cut, random, *scratch);
            CHECK(trial.sound && slip::is_corrupt(trial.status));
        }
    }
}

void append(Bytes& bytes, const Bytes& more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
}

// A progressive file of few bytes and many scans, each of which walks over all blocks of a large
// picture.
Bytes endless_scans(int side, int scans) {
    const auto high = static_cast<std::uint8_t>(side >> 8), low = static_cast<std::uint8_t>(side);
    Bytes table(17, 0), quant(65, 1), bytes{0xFF, 0xD8};
    quant[0] = 0;
    table[1] = 1;  // one code of one bit
    const auto huffman = [&](std::uint8_t number, std::uint8_t symbol) {
        Bytes content = table;
        content[0] = number;
        content.push_back(symbol);
        return marker_segment(0xC4, content);
    };
    append(bytes, marker_segment(0xDB, quant));
    append(bytes, marker_segment(0xC2, {8, high, low, high, low, 1, 1, 0x11, 0}));
    append(bytes, huffman(0x00, 0));     // DC: no difference
    append(bytes, huffman(0x10, 0xE0));  // AC: the end of 2^14 blocks and more
    append(bytes, marker_segment(0xDA, {1, 1, 0, 0, 0, 0}));
    const int blocks = side / 8 * (side / 8);
    bytes.resize(bytes.size() + static_cast<std::size_t>(blocks / 8));
    for (int scan = 0; scan < scans; ++scan) {
        append(bytes, marker_segment(0xDA, {1, 1, 0, 1, 63, 0}));
        append(bytes, Bytes(static_cast<std::size_t>(blocks >> 14) * 15 / 8 + 1, 0));
    }
    append(bytes, {0xFF, 0xD9});
    return bytes;
}

void endless_scans_end() {
    Ledger ledger;
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (const int scans : {10, 4000}) {
        Random random(83);
        const Bytes bytes = endless_scans(2048, scans);
        ledger.enter(std::to_string(scans) + " scans", bytes,
                     [&] { return try_file(bytes, random, *scratch); });
    }
    ledger.print();
}

// 16,384 x 16,384 pixels in 65,536 segments of one byte: well-formed, if one does not ask what a
// byte can hold.
Bytes tiny_record_of_huge_picture() {
    Random random(84);
    Bytes record = record_of(random_coefficients(kSamplings[0], 8, 8, {}, random));
    const std::size_t header_bytes = record[4] | record[5] << 8;
    const std::uint8_t frame[] = {0xFF, 0xC0};
    const auto at = std::search(record.begin(), record.end(), std::begin(frame), std::end(frame)) -
                    record.begin();
    for (const int side : {5, 7}) {
        record[static_cast<std::size_t>(at + side)] = 0x40;
        record[static_cast<std::size_t>(at + side + 1)] = 0;
    }
    record[12] = record[13] = record[15] = 0;
    record[14] = 1;   // S = 65,536
    record[16] = 64;  // T
    record[19] = 0;   // B
    record[20] = 1;   // m
    record[21] = 0;
    record.resize(slip::kTileRecordFixedBytes + header_bytes);
    record.resize(record.size() + slip::kLengthPadding + 65'536);
    return record;
}

// A small file whose frame says that it is as large as the format allows.
Bytes tiny_file_of_huge_picture(Scans scans) {
    Random random(85);
    JpegOptions options;
    options.scans = scans;
    Bytes file = make_jpeg(options, random);
    const std::uint8_t size[] = {8, 0, 16, 0, 16, 3};  // precision, height, width, components
    const auto at = std::search(file.begin(), file.end(), std::begin(size), std::end(size));
    CHECK(at != file.end());
    at[1] = at[3] = 0x40;
    at[2] = at[4] = 0;
    return file;
}

void small_data_of_huge_pictures() {
    Ledger ledger;
    const slip::ScratchPtr scratch = slip::make_scratch();
    Random random(86);
    const Bytes record = tiny_record_of_huge_picture();
    ledger.enter("record", record, [&] { return try_record(record, random, *scratch); });
    for (const Scans scans : {Scans::one, Scans::separate, Scans::progressive}) {
        const Bytes file = tiny_file_of_huge_picture(scans);
        ledger.enter("file", file, [&] { return try_file(file, random, *scratch); });
    }
    ledger.print();
    CHECK(ledger.rejected() == ledger.total());
}

// Sound sources end well: otherwise the rest of this program would prove nothing.
void sound_sources(const std::vector<Source>& sources) {
    Random random(82);
    const slip::ScratchPtr scratch = slip::make_scratch();
    for (const Source& source : sources) {
        const Trial file = try_file(source.file, random, *scratch),
                    record = try_record(source.record, random, *scratch);
        CHECK(file.sound && file.status == Status::ok);
        CHECK(record.sound && record.status == Status::ok);
    }
}

}  // namespace

int main() {
    const bool watching = watch_allocations();
    std::printf("allocations are %s\n", watching ? "watched" : "not watched: no AddressSanitizer");
    const std::vector<Source> sources = make_sources();
    check::run("sound sources", [&] { sound_sources(sources); });
    check::run("every truncation of records", [&] { every_truncation(sources); });
    check::run("endless scans end", endless_scans_end);
    check::run("small data of huge pictures", small_data_of_huge_pictures);
    check::run("damaged files", [&] { damaged_files(sources); });
    check::run("damaged records", [&] { damaged_records(sources); });
    return check::finish();
}
