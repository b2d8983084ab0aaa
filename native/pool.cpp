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

// One call of parallel_for. Shared with the workers, so that a worker that wakes up late still has
// something to look at.
struct Job {
    std::size_t count = 0;
    const std::function<void(std::size_t)>* work = nullptr;
    std::atomic<std::size_t> next{0};
    int helpers_wanted = 0;  // guarded by Pool::mutex
    int helpers_active = 0;  // guarded by Pool::mutex

    void take_items() {
        for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) (*work)(i);
    }
};

struct Pool {
    std::mutex turn;  // one job at a time
    std::mutex mutex;
    std::condition_variable work_there, helper_done;
    std::shared_ptr<Job> job;
    int threads = 0;

    void help() {
        std::unique_lock lock(mutex);
        for (;;) {
            work_there.wait(lock, [&] { return job && job->helpers_wanted > 0; });
            std::shared_ptr<Job> mine = job;
            --mine->helpers_wanted;
            ++mine->helpers_active;
            lock.unlock();
            mine->take_items();
            lock.lock();
            if (--mine->helpers_active == 0) helper_done.notify_all();
        }
    }

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
        std::lock_guard one_at_a_time(turn);
        auto mine = std::make_shared<Job>();
        mine->count = count;
        mine->work = &work;
        {
            std::lock_guard lock(mutex);
            start_threads(helpers);
            mine->helpers_wanted = std::min(helpers, threads);
            job = mine;
        }
        work_there.notify_all();
        mine->take_items();
        std::unique_lock lock(mutex);
        mine->helpers_wanted =
            0;  // a helper that has not started yet stays away: `work` is about to go
        helper_done.wait(lock, [&] { return mine->helpers_active == 0; });
        job.reset();
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
