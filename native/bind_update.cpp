// What Python sees of update.h: addresses, whose tensors the caller has looked at and holds.
#include "bind.h"
#include "update.h"

namespace {

using Addresses = std::vector<std::uintptr_t>;

float* at(const Addresses& addresses, std::size_t i) {
    return addresses.empty() ? nullptr : reinterpret_cast<float*>(addresses[i]);
}

std::vector<slip::Updated> group_of(const std::vector<std::size_t>& counts, const Addresses& values,
                                    const Addresses& gradients, const Addresses& firsts,
                                    const Addresses& seconds, const Addresses& roots,
                                    const Addresses& steps) {
    for (const Addresses* each : {&values, &gradients})
        if (each->size() != counts.size()) throw nb::value_error("not as many as counts");
    for (const Addresses* each : {&firsts, &seconds, &roots, &steps})
        if (!each->empty() && each->size() != counts.size())
            throw nb::value_error("not as many as counts");
    std::vector<slip::Updated> group;
    group.reserve(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i)
        group.push_back({at(values, i), at(gradients, i), at(firsts, i), at(seconds, i),
                         at(roots, i), at(steps, i), counts[i]});
    return group;
}

// A group of parameters under Adam, for one step.
class Adam {
  public:
    Adam(const std::vector<std::size_t>& counts, const Addresses& values,
         const Addresses& gradients, const Addresses& firsts, const Addresses& seconds,
         const Addresses& roots, const Addresses& steps)
        : group_(group_of(counts, values, gradients, firsts, seconds, roots, steps)) {
        for (const Addresses* each : {&firsts, &seconds, &roots, &steps})
            if (each->size() != counts.size()) throw nb::value_error("not as many as counts");
    }

    bool lies_apart() const { return slip::lie_apart(group_); }

    void moments(bool fused, double rate, double beta1, double beta2, double epsilon,
                 double weight_decay, bool decoupled) {
        rates_ = {fused, rate, beta1, beta2, epsilon, weight_decay, decoupled};
        ReleasedGil released;
        slip::update_moments(group_, rates_);
    }

    void values() const {
        ReleasedGil released;
        slip::update_values(group_, rates_);
    }

  private:
    std::vector<slip::Updated> group_;
    slip::AdamRates rates_{};
};

bool update_by_sgd(const std::vector<std::size_t>& counts, const Addresses& values,
                   const Addresses& gradients, const Addresses& firsts, bool fused, double rate,
                   double momentum, double dampening, double weight_decay, bool nesterov) {
    const std::vector<slip::Updated> group =
        group_of(counts, values, gradients, firsts, {}, {}, {});
    if (!slip::lie_apart(group)) return false;
    ReleasedGil released;
    slip::update_by_sgd(group, {fused, rate, momentum, dampening, weight_decay, nesterov});
    return true;
}

}  // namespace

void bind_update(nb::module_& m) {
    nb::class_<Adam>(m, "Adam", "A step of Adam for float32 memory at these addresses.")
        .def(nb::init<const std::vector<std::size_t>&, const Addresses&, const Addresses&,
                      const Addresses&, const Addresses&, const Addresses&, const Addresses&>(),
             "counts"_a, "values"_a, "gradients"_a, "firsts"_a, "seconds"_a, "roots"_a, "steps"_a)
        .def("lies_apart", &Adam::lies_apart, "Whether nothing is there twice.")
        .def("moments", &Adam::moments, "fused"_a, "rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a,
             "weight_decay"_a, "decoupled"_a,
             "Decay, both means, and the squares' mean into the roots, whose roots come next.")
        .def("values", &Adam::values, "With the roots: the parameters, and their steps.");
    m.def("update_by_sgd", &update_by_sgd, "counts"_a, "values"_a, "gradients"_a, "firsts"_a,
          "fused"_a, "rate"_a, "momentum"_a, "dampening"_a, "weight_decay"_a, "nesterov"_a,
          "A step of SGD for float32 memory at these addresses; false, and none, if some overlap.");
}
