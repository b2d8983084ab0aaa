#include "pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace slip {
namespace {

constexpr int kMaxThreads = 1024;

// One call of parallel_for. Shared with the helpers, so that one that leaves late still has
// something to leave.
struct Job {
    Job(std::size_t count, const std::function<void(std::size_t)>& work)
        : count(count), work(&work) {}

    const std::size_t count;
    const std::function<void(std::size_t)>* const work;  // gone once the caller returns
    std::atomic<std::size_t> next{0};
    // Guarded by Pool::mutex.
    int helpers_wanted = 0, helpers_active = 0;
    std::condition_variable helper_done;

    void take_items() {
        for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) (*work)(i);
    }
    bool wants_help() const {
        return helpers_wanted > 0 && next.load(std::memory_order_relaxed) < count;
    }
};

struct Pool {
    std::mutex mutex;
    std::condition_variable work_there;
    std::vector<std::shared_ptr<Job>> jobs;  // of all callers at work, oldest first
    int threads = 0;

    // The oldest first: its caller has waited longest.
    std::shared_ptr<Job> job_to_help() const {
        for (const auto& job : jobs) {
            if (job->wants_help()) return job;
        }
        return nullptr;
    }

    void help() {
        std::unique_lock lock(mutex);
        for (;;) {
            std::shared_ptr<Job> job;
            work_there.wait(lock, [&] { return (job = job_to_help()) != nullptr; });
            --job->helpers_wanted;
            ++job->helpers_active;
            lock.unlock();
            job->take_items();
            lock.lock();
            if (--job->helpers_active == 0) job->helper_done.notify_one();
        }
    }

    // As many as the call that asks for most: those of its helpers that have run out of items are
    // there for the others.
    void start_threads(int wanted) {
        while (threads < wanted) {
            try {
                std::thread([this] { help(); }).detach();
            } catch (const std::system_error&) {
                return;  // the system has no more threads for us: the caller's own thread does the
                         // work
            }
            ++threads;
        }
    }

    void run(std::size_t count, int helpers, const std::function<void(std::size_t)>& work) {
        const auto mine = std::make_shared<Job>(count, work);
        {
            std::lock_guard lock(mutex);
            start_threads(helpers);
            helpers = std::min(helpers, threads);
            mine->helpers_wanted = helpers;
            jobs.push_back(mine);
        }
        // A helper that is at work elsewhere looks for the next job by itself.
        for (int i = 0; i < helpers; ++i) work_there.notify_one();
        mine->take_items();
        std::unique_lock lock(mutex);
        // A helper that has not started yet stays away: `work` is about to go.
        jobs.erase(std::find(jobs.begin(), jobs.end(), mine));
        mine->helper_done.wait(lock, [&] { return mine->helpers_active == 0; });
    }
};

// A forked child has none of its parent's threads and may have its mutexes locked: it leaves the
// old pool where it lies and makes a new one.
Pool& pool() {
    static std::mutex guard;
    static Pool* current = nullptr;
    static const int registered = pthread_atfork([] { guard.lock(); }, [] { guard.unlock(); },
                                                 [] {
                                                     current = nullptr;
                                                     guard.unlock();
                                                 });
    (void)registered;
    std::lock_guard lock(guard);
    if (!current) current = new Pool;
    return *current;
}

}  // namespace

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
    const auto useful = std::min<std::size_t>(count, std::clamp(threads, 1, kMaxThreads));
    if (useful <= 1) {
        for (std::size_t i = 0; i < count; ++i) work(i);
        return;
    }
    pool().run(count, static_cast<int>(useful) - 1, work);
}

}  // namespace slip
