// Chooses the fastest version of the engine that this processor can run.
#include "convert.h"
#include "isa.h"
#include "scratch.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace slip {
namespace {

#if defined(SLIP_HAS_MODERN)

bool processor_is_modern() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("fma");
#elif defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#else
    return true;  // every Apple arm64 processor
#endif
}

bool use_modern() {
    static const bool yes = processor_is_modern();
    return yes;
}

#endif

}  // namespace

ScratchPtr make_scratch() { return ScratchPtr(new Scratch); }
void ScratchDeleter::operator()(Scratch* scratch) const { delete scratch; }

Status decode_picture(const Picture& picture, const Box& box, const Target& target,
                      Scratch& scratch) {
#if defined(SLIP_HAS_MODERN)
    if (use_modern()) return modern::decode_picture(picture, box, target, scratch);
#endif
    return baseline::decode_picture(picture, box, target, scratch);
}

Status resize_picture(const std::uint8_t* pixels, int width, int height, const Target& target,
                      Scratch& scratch) {
#if defined(SLIP_HAS_MODERN)
    if (use_modern()) return modern::resize_picture(pixels, width, height, target, scratch);
#endif
    return baseline::resize_picture(pixels, width, height, target, scratch);
}

void separate_pixels(const std::uint8_t* pixels, std::size_t count, std::uint8_t* planes,
                     std::size_t plane) {
#if defined(SLIP_HAS_MODERN)
    if (use_modern()) return modern::separate_pixels(pixels, count, planes, plane);
#endif
    baseline::separate_pixels(pixels, count, planes, plane);
}

void look_up_pixels(const std::uint8_t* pixels, std::size_t count, const float* tables,
                    float* planes, std::size_t plane) {
#if defined(SLIP_HAS_MODERN)
    if (use_modern()) return modern::look_up_pixels(pixels, count, tables, planes, plane);
#endif
    baseline::look_up_pixels(pixels, count, tables, planes, plane);
}

void update_moments(const std::vector<Updated>& group, const AdamRates& rates) {
#if defined(SLIP_HAS_MODERN)
    if (use_modern()) return modern::update_moments(group, rates);
#endif
    baseline::update_moments(group, rates);
}

void update_values(const std::vector<Updated>& group, const AdamRates& rates) {
#if defined(SLIP_HAS_MODERN)
    if (use_modern()) return modern::update_values(group, rates);
#endif
    baseline::update_values(group, rates);
}

void update_by_sgd(const std::vector<Updated>& group, const SgdRates& rates) {
#if defined(SLIP_HAS_MODERN)
    if (use_modern()) return modern::update_by_sgd(group, rates);
#endif
    baseline::update_by_sgd(group, rates);
}

}  // namespace slip
