// Just enough to test with: cases, checks, and a closing line.
#pragma once

#include <atomic>
#include <cstdio>
#include <exception>
#include <string>

namespace check {

constexpr int kMostPrinted = 10;  // failures of one case that are printed; all are counted

struct Tally {
    int passed = 0, failed = 0;
    std::atomic<int> failures_in_case{0};
    std::string where;  // what the case is looking at: printed with a failure
};

inline Tally& tally() {
    static Tally the;
    return the;
}

inline void looking_at(std::string what) { tally().where = std::move(what); }

inline bool record(bool good, const char* file, int line, const char* expression) {
    if (good) return true;
    if (tally().failures_in_case++ < kMostPrinted) {
        std::printf("%s:%d: not true: %s", file, line, expression);
        if (!tally().where.empty()) std::printf("  [%s]", tally().where.c_str());
        std::printf("\n");
        std::fflush(stdout);
    }
    return false;
}

// Runs one case; an exception is a failure like any other.
template <class Case>
void run(const char* name, Case&& body) {
    Tally& the = tally();
    the.failures_in_case = 0;
    the.where.clear();
    try {
        body();
    } catch (const std::exception& error) {
        std::printf("%s threw: %s  [%s]\n", name, error.what(), the.where.c_str());
        ++the.failures_in_case;
    }
    const bool good = the.failures_in_case == 0;
    ++(good ? the.passed : the.failed);
    std::printf("%-4s %s\n", good ? "ok" : "FAIL", name);
    std::fflush(stdout);
}

// The last thing a program does: its closing line and exit status.
inline int finish() {
    std::printf("%d passed, %d failed\n", tally().passed, tally().failed);
    return tally().failed == 0 && tally().passed > 0 ? 0 : 1;
}

}  // namespace check

#define CHECK(...) ::check::record(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, #__VA_ARGS__)
