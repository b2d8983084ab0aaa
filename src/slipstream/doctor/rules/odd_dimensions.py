"""`odd-dimensions`: sizes of matrices that tensor cores must read in odd pieces."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import learning_ms
from slipstream.doctor.rules.replayed import compare, replays

NAME = "odd-dimensions"
HEALTHY = "matrices have sizes that tensor cores like"
_SHARE = 0.05


def find(case: Case) -> list[Finding]:
    """Measured with a few rows and columns more."""
    if not case.on_device:
        return []
    slow = [compare(replay) for replay in replays(case, "odd-product")]
    slow = sorted((entry for entry in slow if entry.is_sure), key=lambda entry: -entry.cost_ms)
    cost = min(sum(entry.cost_ms for entry in slow), learning_ms(case))
    if not slow or cost < _SHARE * case.step_ms or not case.matters(cost):
        return []
    first = slow[0].replay
    (_, _, inner, columns), (_, _, to_inner, to_columns) = first["shape"], first["padded"]
    high = min(sum(entry.high_ms for entry in slow), learning_ms(case))
    return [
        Finding(
            rule=NAME,
            title=(
                f"A matrix of {inner} times {columns} in {first['dtype']} takes {cost:.1f} ms of a"
                f" step more than one of {to_inner} times {to_columns}."
            ),
            where=first["where"],
            places=tuple(e.replay["where"] for e in slow[1:4] if e.replay["where"]),
            cost_ms=cost,
            fix=f"Pad it: {to_inner} times {to_columns}; what is added is never used.",
            fix_class="S",
            gain=Gain(min(sum(entry.low_ms for entry in slow), high), high, "measured"),
        )
    ]
