// Optimizers' steps against the same operations one by one, in every version of the code.
#include "update.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "check.h"
#include "isa.h"
#include "random.h"

namespace {

using Numbers = std::vector<float>;

struct Version {
    decltype(&slip::update_moments) moments;
    decltype(&slip::update_values) values;
    decltype(&slip::update_by_sgd) sgd;
};

const Version kVersions[] = {
    {slip::update_moments, slip::update_values, slip::update_by_sgd},
    {slip::baseline::update_moments, slip::baseline::update_values, slip::baseline::update_by_sgd},
};

Numbers numbers(std::size_t count, testing::Random& random, int low) {
    Numbers made(count);
    for (float& number : made)
        number = std::ldexp(static_cast<float>(random.between(low, 1000)), random.between(-20, 3));
    return made;
}

// Rounded after every operation, or once for a product and a sum.
float multiply_add(bool fused, float a, float b, float c) {
    if (fused) return std::fma(a, b, c);
    const volatile float product = a * b;
    return product + c;
}

struct Parameter {
    Numbers value, gradient, first, second, root;
    float step = 2;

    Parameter(std::size_t count, testing::Random& random)
        : value(numbers(count, random, -1000)),
          gradient(numbers(count, random, -1000)),
          first(numbers(count, random, -1000)),
          second(numbers(count, random, 0)),
          root(count) {}

    slip::Updated updated() {
        return {value.data(), gradient.data(), first.data(), second.data(),
                root.data(),  &step,           value.size()};
    }

    void adam(const slip::AdamRates& rates) {
        step += 1;
        const auto f = [](double number) { return static_cast<float>(number); };
        const float weight = f(1 - rates.beta1), rest = f(1 - rates.beta2);
        const float back = f(-(rates.rate / (1 - std::pow(rates.beta1, double{step}))));
        const float scale = f(std::pow(1 - std::pow(rates.beta2, double{step}), 0.5));
        for (std::size_t i = 0; i < value.size(); ++i) {
            float slope = gradient[i];
            if (rates.weight_decay != 0 && rates.is_decoupled) {
                const double kept = rates.rate * rates.weight_decay;
                value[i] *= f(1 - kept);
            } else if (rates.weight_decay != 0) {
                slope = multiply_add(rates.is_fused, value[i], f(rates.weight_decay), slope);
            }
            const float way = slope - first[i];
            first[i] = weight < 0.5f ? multiply_add(rates.is_fused, weight, way, first[i])
                                     : multiply_add(rates.is_fused, weight - 1, way, slope);
            const volatile float decayed = second[i] * f(rates.beta2), part = rest * slope;
            second[i] = multiply_add(rates.is_fused, part, slope, decayed);
            const volatile float scaled = std::sqrt(second[i]) / scale;
            const volatile float below = scaled + f(rates.epsilon), above = back * first[i];
            const volatile float change = above / below;
            value[i] = value[i] + change;
        }
    }

    void sgd(const slip::SgdRates& rates) {
        const auto f = [](double number) { return static_cast<float>(number); };
        for (std::size_t i = 0; i < value.size(); ++i) {
            float slope = gradient[i];
            if (rates.weight_decay != 0)
                slope = multiply_add(rates.is_fused, value[i], f(rates.weight_decay), slope);
            if (rates.momentum != 0) {
                const volatile float kept = first[i] * f(rates.momentum);
                first[i] = multiply_add(rates.is_fused, slope, f(1 - rates.dampening), kept);
                slope = rates.is_nesterov
                            ? multiply_add(rates.is_fused, first[i], f(rates.momentum), slope)
                            : first[i];
            }
            value[i] = multiply_add(rates.is_fused, slope, f(-rates.rate), value[i]);
        }
    }
};

bool are_equal(const Numbers& one, const Numbers& other) {
    return std::memcmp(one.data(), other.data(), 4 * one.size()) == 0;
}

void adam_rounds_as_said() {
    testing::Random random(1);
    for (const Version& version : kVersions)
        for (const bool fused : {false, true})
            for (const bool decoupled : {false, true})
                for (const double beta1 : {0.9, 0.3})
                    for (const double decay : {0.0, 0.1}) {
                        const slip::AdamRates rates{fused, 0.01,  beta1,    0.999,
                                                    1e-8,  decay, decoupled};
                        std::vector<Parameter> ours;
                        for (const std::size_t count : {1, 7, 8, 33, 500})
                            ours.emplace_back(count, random);
                        std::vector<Parameter> theirs = ours;
                        std::vector<slip::Updated> group;
                        for (Parameter& one : ours) group.push_back(one.updated());
                        version.moments(group, rates);
                        for (Parameter& one : ours)
                            for (float& root : one.root) root = std::sqrt(root);
                        version.values(group, rates);
                        for (std::size_t i = 0; i < ours.size(); ++i) {
                            theirs[i].adam(rates);
                            CHECK(are_equal(ours[i].value, theirs[i].value));
                            CHECK(are_equal(ours[i].first, theirs[i].first));
                            CHECK(are_equal(ours[i].second, theirs[i].second));
                            CHECK(ours[i].step == 3);
                        }
                    }
}

void sgd_rounds_as_said() {
    testing::Random random(2);
    for (const Version& version : kVersions)
        for (const bool fused : {false, true})
            for (const double momentum : {0.0, 0.9})
                for (const double decay : {0.0, 0.01}) {
                    const slip::SgdRates rates{fused, 0.05, momentum, 0.1, decay, momentum != 0};
                    Parameter ours(101, random), theirs = ours;
                    slip::Updated one = ours.updated();
                    if (momentum == 0) one.first = nullptr;
                    version.sgd({one}, rates);
                    theirs.sgd(rates);
                    CHECK(are_equal(ours.value, theirs.value));
                    CHECK(are_equal(ours.first, theirs.first));
                }
}

void memory_that_is_there_twice_is_seen() {
    testing::Random random(3);
    Parameter one(20, random), other(20, random);
    CHECK(slip::lie_apart({one.updated(), other.updated()}));
    CHECK(!slip::lie_apart({one.updated(), one.updated()}));
    slip::Updated half = one.updated();
    half.count = 10;
    slip::Updated behind = other.updated();
    behind.value = one.value.data() + 10;
    behind.count = 10;
    CHECK(slip::lie_apart({half, behind}));  // side by side
    behind.value -= 1;
    CHECK(!slip::lie_apart({half, behind}));
    behind.count = 0;
    CHECK(slip::lie_apart({half, behind}));
    slip::Updated counted = other.updated();
    counted.step = &one.step;
    CHECK(!slip::lie_apart({one.updated(), counted}));
}

}  // namespace

int main() {
    check::run("Adam rounds as said", adam_rounds_as_said);
    check::run("SGD rounds as said", sgd_rounds_as_said);
    check::run("memory that is there twice is seen", memory_that_is_there_twice_is_seen);
    return check::finish();
}
