#include "pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "check.h"

namespace {

using slip::parallel_for;

void every_item_once() {
    for (const std::size_t count : {1u, 2u, 3u, 7u, 64u, 1000u, 10'007u}) {
        for (const int threads : {1, 2, 3, 8, 32}) {
            std::vector<std::atomic<int>> seen(count);
            parallel_for(count, threads, [&](std::size_t i) { ++seen[i]; });
            for (const auto& times : seen) CHECK(times == 1);
        }
    }
}

void zero_items_call_nothing() {
    for (const int threads : {0, 1, 2, 100}) {
        parallel_for(0, threads, [&](std::size_t) { CHECK(false); });
    }
}

void odd_thread_numbers() {
    for (const int threads : {-2'000'000'000, -1, 0, 1, 5000}) {
        std::atomic<int> done{0};
        parallel_for(10, threads, [&](std::size_t) { ++done; });
        CHECK(done == 10);
    }
}

std::size_t threads_used(std::size_t count, int threads) {
    std::mutex guard;
    std::set<std::thread::id> ids;
    parallel_for(count, threads, [&](std::size_t) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const std::lock_guard lock(guard);
        ids.insert(std::this_thread::get_id());
    });
    return ids.size();
}

void no_more_threads_than_asked_for() {
    parallel_for(100, 8,
                 [](std::size_t) {});  // the pool now has more threads than the next call may use
    CHECK(threads_used(60, 3) <= 3);
    CHECK(threads_used(60, 1) == 1);
    CHECK(threads_used(2, 8) <= 2);
}

// Two items that wait for each other can only end if two threads work.
void work_goes_on_side_by_side() {
    std::atomic<int> arrived{0};
    parallel_for(2, 2, [&](std::size_t) {
        ++arrived;
        while (arrived < 2) std::this_thread::yield();
    });
    CHECK(arrived == 2);
}

void thousands_of_small_jobs() {
    std::atomic<long> sum{0};
    for (int job = 0; job < 5000; ++job) {
        parallel_for(4, 3, [&](std::size_t i) { sum += static_cast<long>(i); });
    }
    CHECK(sum == 5000 * 6);
}

void many_callers() {
    std::atomic<long> sum{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 8; ++caller) {
        callers.emplace_back([&, caller] {
            for (int job = 0; job < 200; ++job) {
                std::vector<int> mine(50, 0);  // as long as the call: nobody touches it later
                parallel_for(mine.size(), 2 + caller % 4, [&](std::size_t i) { mine[i] = 1; });
                for (const int one : mine) sum += one;
            }
        });
    }
    for (auto& caller : callers) caller.join();
    CHECK(sum == 8 * 200 * 50);
}

// A call ends while another, begun before it, is still at work.
void calls_do_not_wait_for_each_other() {
    std::atomic<int> started{0};
    std::atomic<bool> second_done{false};
    std::thread first([&] {
        parallel_for(2, 2, [&](std::size_t) {
            ++started;
            while (!second_done) std::this_thread::yield();
        });
    });
    while (started == 0) std::this_thread::yield();
    std::atomic<int> items{0};
    parallel_for(50, 2, [&](std::size_t) { ++items; });
    CHECK(items == 50);
    second_done = true;
    first.join();
}

// A helper that has no more items in one call goes on to the next while the first call's own thread
// is still busy.
void helpers_go_on_to_the_next_call() {
    std::atomic<bool> helped{false}, first_has_help{false};
    std::thread first([&] {
        const auto caller = std::this_thread::get_id();
        std::atomic<int> arrived{0};
        parallel_for(2, 2, [&](std::size_t) {
            ++arrived;
            while (arrived < 2) std::this_thread::yield();
            first_has_help = true;
            if (std::this_thread::get_id() == caller) {
                while (!helped) std::this_thread::yield();
            }
        });
    });
    while (!first_has_help) std::this_thread::yield();
    // Two items that wait for each other: one is the helper's.
    std::atomic<int> arrived{0};
    parallel_for(2, 2, [&](std::size_t) {
        ++arrived;
        while (arrived < 2) std::this_thread::yield();
    });
    helped = true;
    first.join();
    CHECK(arrived == 2);
}

// Each call keeps to its own number of threads, however many the pool has and others use.
void limits_hold_side_by_side() {
    parallel_for(100, 8, [](std::size_t) {});
    std::vector<std::thread> callers;
    std::atomic<int> over{0};
    for (int caller = 0; caller < 4; ++caller) {
        callers.emplace_back([&, caller] {
            for (int job = 0; job < 10; ++job) {
                const int threads = 1 + (caller + job) % 3;
                over += threads_used(12, threads) > static_cast<std::size_t>(threads);
            }
        });
    }
    for (auto& caller : callers) caller.join();
    CHECK(over == 0);
}

// What the work wrote is there when the call returns, without atomics.
void results_are_visible() {
    for (int round = 0; round < 500; ++round) {
        std::vector<int> values(257, -1);
        parallel_for(values.size(), 4,
                     [&](std::size_t i) { values[i] = static_cast<int>(i) + round; });
        for (int i = 0; i < 257; ++i) CHECK(values[i] == i + round);
    }
}

// Runs `body` in a forked child. -1: it did not end in time.
template <class Body>
int status_of_child(Body&& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    for (int waited_ms = 0; waited_ms < 60'000; ++waited_ms) {
        int status = 0;
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return -1;
}

int use_pool() {
    std::atomic<int> done{0};
    for (int job = 0; job < 20; ++job) parallel_for(100, 3, [&](std::size_t) { ++done; });
    return done == 2000 ? 7 : 1;
}

void forked_child_has_its_own_threads() {
    CHECK(use_pool() == 7);
    CHECK(status_of_child(use_pool) == 7);
    CHECK(status_of_child([] { return status_of_child(use_pool); }) == 7);
    CHECK(use_pool() == 7);
}

void fork_while_busy() {
    std::atomic<bool> stop{false};
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i) {
        callers.emplace_back([&] {
            while (!stop) parallel_for(64, 3, [](std::size_t) { std::this_thread::yield(); });
        });
    }
    for (int round = 0; round < 25; ++round) {
        check::looking_at("fork number " + std::to_string(round));
        CHECK(status_of_child(use_pool) == 7);
    }
    stop = true;
    for (auto& caller : callers) caller.join();
    CHECK(use_pool() == 7);
}

}  // namespace

int main() {
    check::run("every item once", every_item_once);
    check::run("zero items call nothing", zero_items_call_nothing);
    check::run("odd thread numbers", odd_thread_numbers);
    check::run("no more threads than asked for", no_more_threads_than_asked_for);
    check::run("work goes on side by side", work_goes_on_side_by_side);
    check::run("thousands of small jobs", thousands_of_small_jobs);
    check::run("many callers", many_callers);
    check::run("calls do not wait for each other", calls_do_not_wait_for_each_other);
    check::run("helpers go on to the next call", helpers_go_on_to_the_next_call);
    check::run("limits hold side by side", limits_hold_side_by_side);
    check::run("results are visible", results_are_visible);
    check::run("a forked child has its own threads", forked_child_has_its_own_threads);
    check::run("fork while busy", fork_while_busy);
    return check::finish();
}
