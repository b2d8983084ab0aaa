#include "batch.h"

#include <new>

#include "checksum.h"
#include "pool.h"

namespace slip {

namespace {

Status decode_one(const Batch& batch, std::size_t i) noexcept try {
    const View payload = batch.payloads[i];
    const std::uint32_t* checksum = batch.payloads.checksum(i);
    if (checksum && crc32c(payload.data(), payload.size()) != *checksum) return Status::checksum;
    const std::int32_t* b = batch.boxes + 4 * i;
    const std::size_t pixels = std::size_t{3} * batch.height * batch.width;
    Target target{batch.out + i * pixels,
                  batch.width,
                  batch.height,
                  batch.filter,
                  batch.order,
                  (batch.flips[i] & 1) != 0,
                  (batch.flips[i] & 2) != 0};
    Window window;
    if (batch.resized) {
        const std::int32_t* r = batch.resized + 4 * i;
        window = {r[0], r[1], r[2], r[3]};
        target.window = &window;
    }
    return decode_picture({payload.data(), payload.size(), static_cast<Coding>(batch.codings[i])},
                          {b[0], b[1], b[2], b[3]}, target, thread_scratch());
} catch (const std::bad_alloc&) {
    return Status::memory;
}

}  // namespace

Scratch& thread_scratch() {
    thread_local ScratchPtr scratch = make_scratch();
    return *scratch;
}

void decode_batch(const Batch& batch, std::size_t count, int threads, std::int32_t* statuses) {
    parallel_for(count, threads, [&](std::size_t i) {
        statuses[i] = static_cast<std::int32_t>(decode_one(batch, i));
    });
}

}  // namespace slip
