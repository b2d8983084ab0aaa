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

    // False, and nothing done, where a step counts backwards.
    bool moments(bool fused, double rate, double beta1, double beta2, double epsilon,
                 double weight_decay, bool decoupled) {
        for (const slip::Updated& one : group_)
            if (!(*one.step >= 0)) return false;
        rates_ = {fused, rate, beta1, beta2, epsilon, weight_decay, decoupled};
        ReleasedGil released;
        slip::update_moments(group_, rates_);
        return true;
    }

    void values() const {
        ReleasedGil released;
        slip::update_values(group_, rates_);
    }

  private:
    std::vector<slip::Updated> group_;
    slip::AdamRates rates_{};
};

// The same under SGD.
class Sgd {
  public:
    Sgd(const std::vector<std::size_t>& counts, const Addresses& values, const Addresses& gradients,
        const Addresses& firsts)
        : group_(group_of(counts, values, gradients, firsts, {}, {}, {})) {}

    bool lies_apart() const { return slip::lie_apart(group_); }

    void step(bool fused, double rate, double momentum, double dampening, double weight_decay,
              bool nesterov) const {
        ReleasedGil released;
        slip::update_by_sgd(group_, {fused, rate, momentum, dampening, weight_decay, nesterov});
    }

  private:
    std::vector<slip::Updated> group_;
};

}  // namespace

void bind_update(nb::module_& m) {
    nb::class_<Adam>(m, "Adam", "A step of Adam for float32 memory at these addresses.")
        .def(nb::init<const std::vector<std::size_t>&, const Addresses&, const Addresses&,
                      const Addresses&, const Addresses&, const Addresses&, const Addresses&>(),
             "counts"_a, "values"_a, "gradients"_a, "firsts"_a, "seconds"_a, "roots"_a, "steps"_a)
        .def("lies_apart", &Adam::lies_apart, "Whether nothing is there twice.")
        .def("moments", &Adam::moments, "fused"_a, "rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a,
             "weight_decay"_a, "decoupled"_a,
             "Decay, both means, and the squares' mean into the roots, whose roots come next. "
             "False, and "
             "nothing done, where a step counts backwards.")
        .def("values", &Adam::values, "With the roots: the parameters, and their steps.");
    nb::class_<Sgd>(m, "Sgd", "A step of SGD for float32 memory at these addresses.")
        .def(nb::init<const std::vector<std::size_t>&, const Addresses&, const Addresses&,
                      const Addresses&>(),
             "counts"_a, "values"_a, "gradients"_a, "firsts"_a)
        .def("lies_apart", &Sgd::lies_apart, "Whether nothing is there twice.")
        .def("step", &Sgd::step, "fused"_a, "rate"_a, "momentum"_a, "dampening"_a, "weight_decay"_a,
             "nesterov"_a, "All of it.");
}
