// Whether what an optimizer writes belongs to one parameter alone.
#include <algorithm>
#include <functional>

#include "update.h"

namespace slip {
namespace {

struct Span {
    const float *begin, *end;
};

}  // namespace

bool lie_apart(const std::vector<Updated>& group) {
    std::vector<Span> spans;
    spans.reserve(6 * group.size());
    const auto add = [&](const float* begin, std::size_t count) {
        if (begin != nullptr && count != 0) spans.push_back({begin, begin + count});
    };
    for (const Updated& one : group) {
        for (const float* begin :
             {static_cast<const float*>(one.value), one.gradient,
              static_cast<const float*>(one.first), static_cast<const float*>(one.second),
              static_cast<const float*>(one.root)})
            add(begin, one.count);
        add(one.step, 1);
    }
    const std::less<const float*> is_before;
    std::sort(spans.begin(), spans.end(),
              [&](const Span& a, const Span& b) { return is_before(a.begin, b.begin); });
    for (std::size_t i = 1; i < spans.size(); ++i)
        if (is_before(spans[i].begin, spans[i - 1].end)) return false;
    return true;
}

}  // namespace slip
