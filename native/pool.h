// The process's worker threads.
#pragma once

#include <cstddef>
#include <functional>

namespace slip {

// Calls work(item) for every item in [0, count), on the calling thread and at most threads - 1
// others, and returns when all are done. Threads are started when first needed and kept. Callers
// from several threads work side by side: threads that find no more items in one call go on to the
// next. `work` must not throw and must not call parallel_for. After a fork the child starts threads
// of its own.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace slip
