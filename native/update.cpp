// Compiled once per instruction set, as decode.cpp is, and without contraction: what is rounded
// once is written so.
#include "update.h"

#include <cmath>

#include "isa.h"

namespace slip {
namespace SLIP_ISA {
namespace {

template <bool is_fused>
inline float multiply_add(float a, float b, float c) {
    if constexpr (is_fused) {
        return __builtin_fmaf(a, b, c);
    } else {
        return a * b + c;
    }
}

struct MomentFactors {
    float weight;  // of the gradient in the mean; torch starts from the nearer end
    float beta2, rest2, keep, weight_decay;
    bool is_coupled;  // a decay may be too small for a float, and count for infinities
};

template <bool is_fused, bool is_near, bool is_coupled>
void update_moments_of(const Updated& one, const MomentFactors& by) {
    float* __restrict value = one.value;
    const float* __restrict gradient = one.gradient;
    float* __restrict first = one.first;
    float* __restrict second = one.second;
    float* __restrict root = one.root;
    for (std::size_t i = 0; i < one.count; ++i) {
        const float kept = value[i] * by.keep;
        value[i] = kept;
        float slope = gradient[i];
        if constexpr (is_coupled) slope = multiply_add<is_fused>(kept, by.weight_decay, slope);
        const float way = slope - first[i];
        if constexpr (is_near) {
            first[i] = multiply_add<is_fused>(by.weight, way, first[i]);
        } else {
            first[i] = multiply_add<is_fused>(by.weight - 1.0f, way, slope);
        }
        const float mean = multiply_add<is_fused>(by.rest2 * slope, slope, second[i] * by.beta2);
        second[i] = mean;
        root[i] = mean;
    }
}

template <bool is_fused>
void update_moments_as(const std::vector<Updated>& group, const MomentFactors& by) {
    const bool is_near = std::fabs(by.weight) < 0.5f, is_coupled = by.is_coupled;
    for (const Updated& one : group) {
        if (is_near && is_coupled) update_moments_of<is_fused, true, true>(one, by);
        if (is_near && !is_coupled) update_moments_of<is_fused, true, false>(one, by);
        if (!is_near && is_coupled) update_moments_of<is_fused, false, true>(one, by);
        if (!is_near && !is_coupled) update_moments_of<is_fused, false, false>(one, by);
    }
}

struct SgdFactors {
    float back, momentum, rest, weight_decay;
    bool decays;
};

template <bool is_fused>
void update_by_sgd_as(const Updated& one, const SgdFactors& by, bool is_nesterov) {
    float* __restrict value = one.value;
    const float* __restrict gradient = one.gradient;
    float* __restrict first = one.first;
    const bool decays = by.decays;
    if (first == nullptr) {
        for (std::size_t i = 0; i < one.count; ++i) {
            float slope = gradient[i];
            if (decays) slope = multiply_add<is_fused>(value[i], by.weight_decay, slope);
            value[i] = multiply_add<is_fused>(slope, by.back, value[i]);
        }
        return;
    }
    for (std::size_t i = 0; i < one.count; ++i) {
        float slope = gradient[i];
        if (decays) slope = multiply_add<is_fused>(value[i], by.weight_decay, slope);
        const float moved = multiply_add<is_fused>(slope, by.rest, first[i] * by.momentum);
        first[i] = moved;
        slope = is_nesterov ? multiply_add<is_fused>(moved, by.momentum, slope) : moved;
        value[i] = multiply_add<is_fused>(slope, by.back, value[i]);
    }
}

}  // namespace

void update_moments(const std::vector<Updated>& group, const AdamRates& rates) {
    const bool decays = rates.weight_decay != 0.0;
    const double keep = decays && rates.is_decoupled ? 1.0 - rates.rate * rates.weight_decay : 1.0;
    const MomentFactors by{
        static_cast<float>(1.0 - rates.beta1),  static_cast<float>(rates.beta2),
        static_cast<float>(1.0 - rates.beta2),  static_cast<float>(keep),
        static_cast<float>(rates.weight_decay), decays && !rates.is_decoupled,
    };
    if (rates.is_fused) {
        update_moments_as<true>(group, by);
    } else {
        update_moments_as<false>(group, by);
    }
}

void update_values(const std::vector<Updated>& group, const AdamRates& rates) {
    for (const Updated& one : group) {
        *one.step += 1.0f;
        const double step = *one.step;
        const double rest1 = 1.0 - std::pow(rates.beta1, step);
        const double rest2 = 1.0 - std::pow(rates.beta2, step);
        const float back = static_cast<float>(-(rates.rate / rest1));
        const float scale = static_cast<float>(std::pow(rest2, 0.5));
        const float epsilon = static_cast<float>(rates.epsilon);
        float* __restrict value = one.value;
        const float* __restrict first = one.first;
        const float* __restrict root = one.root;
        for (std::size_t i = 0; i < one.count; ++i)
            value[i] = value[i] + back * first[i] / (root[i] / scale + epsilon);
    }
}

void update_by_sgd(const std::vector<Updated>& group, const SgdRates& rates) {
    const SgdFactors by{
        static_cast<float>(-rates.rate),
        static_cast<float>(rates.momentum),
        static_cast<float>(1.0 - rates.dampening),
        static_cast<float>(rates.weight_decay),
        rates.weight_decay != 0.0,
    };
    for (const Updated& one : group) {
        if (rates.is_fused) {
            update_by_sgd_as<true>(one, by, rates.is_nesterov);
        } else {
            update_by_sgd_as<false>(one, by, rates.is_nesterov);
        }
    }
}

}  // namespace SLIP_ISA
}  // namespace slip
