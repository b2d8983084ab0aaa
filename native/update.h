// What torch's optimizers do to float32 parameters, with the same roundings, all of a group at
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace slip {

// One parameter with what belongs to it. Those that an optimizer does not have are null; `step`
// counts.
struct Updated {
    float* value;
    const float* gradient;
    float* first;   // mean of gradients, or momentum
    float* second;  // mean of their squares
    float* root;    // scratch of the same size
    float* step;
    std::size_t count;
};

// Whether no memory is written that belongs to something else as well.
bool lie_apart(const std::vector<Updated>& group);

// `is_fused`: the processor's kernels of torch round a product and a sum once, not twice.
struct AdamRates {
    bool is_fused;
    double rate, beta1, beta2, epsilon, weight_decay;
    bool is_decoupled;  // weights decay by themselves, and not by way of the gradient
};

// Adam in two parts. The roots of what the first one leaves in `root` are taken by torch, whose
// square root is not everywhere the nearest number; then comes the second one.
void update_moments(const std::vector<Updated>& group, const AdamRates& rates);
void update_values(const std::vector<Updated>& group, const AdamRates& rates);

struct SgdRates {
    bool is_fused;
    double rate, momentum, dampening, weight_decay;
    bool is_nesterov;
};

// `first` is null where there is no momentum.
void update_by_sgd(const std::vector<Updated>& group, const SgdRates& rates);

}  // namespace slip
