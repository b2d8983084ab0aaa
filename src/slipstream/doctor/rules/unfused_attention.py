"""`unfused-attention`: attention in steps of Python, with all its weights written to memory."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import learning_ms
from slipstream.doctor.rules.replayed import compare, replays

NAME = "unfused-attention"
HEALTHY = "attention is one operation, or there is none"
_SHARE = 0.05


def find(case: Case) -> list[Finding]:
    """Products with a softmax between them, measured against torch's own."""
    slow = [compare(replay) for replay in replays(case, "attention")]
    slow = sorted((entry for entry in slow if entry.is_sure), key=lambda entry: -entry.cost_ms)
    # By itself it may take longer than in the loop, where memory is warm.
    cost = min(sum(entry.cost_ms for entry in slow), learning_ms(case))
    if not slow or cost < _SHARE * case.step_ms or not case.matters(cost):
        return []
    first = slow[0].replay
    _, queries, keys, _ = first["shape"]
    high = min(sum(entry.high_ms for entry in slow), learning_ms(case))
    return [
        Finding(
            rule=NAME,
            title=(
                f"Attention of {queries} to {keys} is made of two products and a softmax:"
                f" {cost:.1f} ms of a step, and the memory of all weights."
            ),
            where=first["where"],
            places=tuple(e.replay["where"] for e in slow[1:4] if e.replay["where"]),
            cost_ms=cost,
            fix="torch.nn.functional.scaled_dot_product_attention(q, k, v).",
            fix_class="N",
            gain=Gain(min(sum(entry.low_ms for entry in slow), high), high, "measured"),
        )
    ]
