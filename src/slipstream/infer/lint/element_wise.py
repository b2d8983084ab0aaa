"""ShuffleNetV2's fourth guideline: operators that touch every number and compute next to nothing
take their time all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from slipstream.infer.lint.finding import Checked, Row
from slipstream.infer.lint.launching import OPERATOR, REPLAYED
from slipstream.infer.lint.replay import Memory, Replay
from slipstream.infer.lint.shares import checked_share
from slipstream.infer.lint.trace import Op, Trace
from slipstream.timing import Call

RULE = "element-wise-share"
_MOST_PARTS = 40
_LEAST_SHARE = 0.15  # of a call; below it other things matter more
_SAYS = (
    "Activations, additions and copies, as operators of their own, take {} of a call "
    "(ShuffleNetV2's G4)."
)
_DO = (
    "Fewer of them: activations only where they are needed, no copies between layouts. "
    "`slipstream optimize` tries compilers, which make them part of the layers before them."
)


@dataclass(frozen=True)
class Part:
    """Equal operators: one is measured for all."""

    key: str
    ops: Sequence[Op]
    call: Call

    @property
    def row(self) -> Row:
        """Without a time."""
        replay = self.ops[0].replay
        shape = replay.shape if replay else ""
        where = tuple((op.module,) for op in self.ops)
        return Row(f"{self.ops[0].name} on {shape}", where, count=len(self.ops))


def element_wise_parts(trace: Trace) -> list[Part]:
    """Those that take most, each with a call on numbers of its own. Left out is what cannot be
    called alone, so that the share is rather too small than too large.
    """
    equal: dict[Replay, list[Op]] = {}
    for op in trace.ops:
        if op.replay is not None:
            equal.setdefault(op.replay, []).append(op)
    by_time = sorted(equal.items(), key=lambda item: -sum(op.seconds for op in item[1]))
    most = by_time[:_MOST_PARTS]
    memory = Memory([replay for replay, _ in most])
    parts = []
    for number, (replay, ops) in enumerate(most):
        try:
            call = memory.call(replay)
            call()
        except (RuntimeError, TypeError, MemoryError):
            continue
        parts.append(Part(f"{number} {ops[0].name}", ops, call))
    return parts


def element_wise_share(parts: Sequence[Part], taken: Mapping[str, list[float]]) -> Checked:
    """From rounds in which the model and each part were timed."""
    if not parts:
        return Checked(RULE, "absent", "no element-wise operators")
    # An operator called by its schema takes longer than by its name, as the model does.
    extra = [max(0.0, r - o) for r, o in zip(taken[REPLAYED], taken[OPERATOR], strict=True)]
    rows, totals = [], [0.0] * len(extra)
    for part in parts:
        each = [max(0.0, t - e) for t, e in zip(taken[part.key], extra, strict=True)]
        totals = [total + len(part.ops) * t for total, t in zip(totals, each, strict=True)]
        row = part.row
        row.now_ms = 1e3 * median(each)
        rows.append(row)
    rows.sort(key=lambda row: -row.count * (row.now_ms or 0.0))
    return checked_share(RULE, taken["model"], totals, _LEAST_SHARE, (_SAYS, _DO, rows))
