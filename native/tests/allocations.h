// Watches what the code under test allocates, through the hooks of AddressSanitizer. Without it
// nothing is counted.
#pragma once

#include <algorithm>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define SLIP_WATCHES_ALLOCATIONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLIP_WATCHES_ALLOCATIONS 1
#endif
#endif

#if defined(SLIP_WATCHES_ALLOCATIONS)
// From <sanitizer/allocator_interface.h>, which not every compiler package brings along.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                              void (*)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void*);
}
#endif

namespace testing {

// One thread only.
struct Allocations {
    std::size_t largest = 0;  // single one since the last reset
    std::size_t live = 0, peak = 0;

    void reset() {
        largest = 0;
        peak = live;
    }
};

inline Allocations& allocations() {
    static Allocations the;
    return the;
}

#if defined(SLIP_WATCHES_ALLOCATIONS)

inline void on_allocation(const volatile void*, std::size_t size) {
    Allocations& a = allocations();
    a.largest = std::max(a.largest, size);
    a.live += size;
    a.peak = std::max(a.peak, a.live);
}

inline void on_free(const volatile void* pointer) {
    const std::size_t size = __sanitizer_get_allocated_size(pointer);
    Allocations& a = allocations();
    a.live -= std::min(a.live, size);
}

inline bool watch_allocations() {
    return __sanitizer_install_malloc_and_free_hooks(on_allocation, on_free) != 0;
}

#else

inline bool watch_allocations() { return false; }

#endif

}  // namespace testing
