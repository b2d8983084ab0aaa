#include "shard_columns.h"

#include <cstring>
#include <set>
#include <thread>

#include "check.h"
#include "random.h"

namespace {

using Bytes = std::vector<std::uint8_t>;
using slip::ShardColumns;

const std::vector<std::size_t> kItemBytes = {8, 4, 1, 3};

// Shards of random sizes, empty ones among them, whose columns start at odd addresses.
struct Shards {
    std::vector<std::int64_t> firsts{0};
    std::vector<std::vector<Bytes>> columns;

    Shards(testing::Random& random, int count) {
        for (int s = 0; s < count; ++s) {
            const int samples = random.chance(4) ? 0 : random.between(1, 40);
            firsts.push_back(firsts.back() + samples);
            columns.emplace_back();
            for (const std::size_t size : kItemBytes) {
                Bytes column(1 + samples * size);
                for (std::uint8_t& byte : column) byte = random.byte();
                columns.back().push_back(std::move(column));
            }
        }
    }

    void open(ShardColumns& target, std::size_t shard) const {
        std::vector<const std::uint8_t*> data;
        for (const Bytes& column : columns[shard]) data.push_back(column.data() + 1);
        target.open(shard, data);
    }

    std::size_t owner(std::int64_t sample) const {
        std::size_t shard = 0;
        while (sample >= firsts[shard + 1]) ++shard;
        return shard;
    }
};

struct Gathered {
    std::vector<std::uint32_t> ids, used;
    std::vector<Bytes> columns;

    Gathered(const ShardColumns& from, const std::vector<std::int64_t>& samples)
        : ids(samples.size()) {
        from.find(samples.data(), samples.size(), ids.data(), used);
        std::vector<std::uint8_t*> out;
        for (const std::size_t size : kItemBytes) columns.emplace_back(size * samples.size());
        for (Bytes& column : columns) out.push_back(column.data());
        from.gather(samples.data(), samples.size(), ids.data(), used, out.data());
    }
};

std::vector<std::int64_t> some_samples(testing::Random& random, std::int64_t all, int count) {
    std::vector<std::int64_t> samples;
    for (int i = 0; i < count; ++i) samples.push_back(random.between(0, static_cast<int>(all) - 1));
    return samples;
}

bool is_right(const Shards& shards, const std::vector<std::int64_t>& samples,
              const Gathered& gathered) {
    std::set<std::uint32_t> owners;
    bool good = true;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const std::size_t owner = shards.owner(samples[i]);
        owners.insert(static_cast<std::uint32_t>(owner));
        good = good && gathered.used[gathered.ids[i]] == owner;
        const std::size_t local = static_cast<std::size_t>(samples[i] - shards.firsts[owner]);
        for (std::size_t c = 0; c < kItemBytes.size(); ++c) {
            const std::size_t size = kItemBytes[c];
            good =
                good && std::memcmp(gathered.columns[c].data() + i * size,
                                    shards.columns[owner][c].data() + 1 + local * size, size) == 0;
        }
    }
    return good && std::vector<std::uint32_t>(owners.begin(), owners.end()) == gathered.used;
}

void equal_to_one_by_one() {
    testing::Random random(1);
    for (int trial = 0; trial < 200; ++trial) {
        check::looking_at("trial " + std::to_string(trial));
        const Shards shards(random, random.between(1, 60));
        ShardColumns columns(shards.firsts, kItemBytes);
        CHECK(columns.samples() == shards.firsts.back());
        for (std::size_t s = 0; s < columns.shards(); ++s) shards.open(columns, s);
        if (columns.samples() == 0) continue;
        const auto samples = some_samples(random, columns.samples(), random.between(0, 300));
        CHECK(is_right(shards, samples, Gathered(columns, samples)));
    }
}

void nothing_of_nothing() {
    const ShardColumns none({0}, kItemBytes);
    CHECK(none.shards() == 0 && none.samples() == 0);
    CHECK(Gathered(none, {}).used.empty());
}

void the_first_to_open_stays() {
    testing::Random random(2);
    const Shards shards(random, 9), others(random, 9);
    ShardColumns columns(shards.firsts, kItemBytes);
    CHECK(!columns.is_open(3));
    for (const Shards* each : {&shards, &others})
        for (std::size_t s = 0; s < columns.shards(); ++s) each->open(columns, s);
    CHECK(columns.is_open(3));
    const auto samples = some_samples(random, columns.samples(), 100);
    CHECK(is_right(shards, samples, Gathered(columns, samples)));
}

void threads_gather_while_one_opens() {
    testing::Random random(3);
    const Shards shards(random, 200);
    ShardColumns columns(shards.firsts, kItemBytes);
    std::vector<std::thread> readers;
    for (int t = 0; t < 3; ++t) {
        readers.emplace_back([&shards, &columns, t] {
            testing::Random own(10 + t);
            for (std::size_t open = 0; open < columns.shards();) {
                while (open < columns.shards() && columns.is_open(open)) ++open;
                if (shards.firsts[open] == 0) continue;
                const auto samples = some_samples(own, shards.firsts[open], 50);
                CHECK(is_right(shards, samples, Gathered(columns, samples)));
            }
        });
    }
    for (std::size_t s = 0; s < columns.shards(); ++s) {
        shards.open(columns, s);
        std::this_thread::yield();
    }
    for (std::thread& reader : readers) reader.join();
}

}  // namespace

int main() {
    check::run("equal to one by one", equal_to_one_by_one);
    check::run("nothing of nothing", nothing_of_nothing);
    check::run("the first to open stays", the_first_to_open_stays);
    check::run("threads gather while one opens", threads_gather_while_one_opens);
    return check::finish();
}
