"""Whether runs of a script did the same."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from slipstream.run.seen import is_read, number_of
from slipstream.run.trace import Trace

# Of what the script's own runs differ by: a few of them do not show all that chance can do.
_WIDER = 8.0
_AHEAD = 4  # losses: one run may begin to differ so much before another


@dataclass(frozen=True)
class Difference:
    """The first thing in which two runs differ."""

    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what}: {self.before} became {self.after}"


@dataclass(frozen=True)
class Reference:
    """What runs of the script as it is have seen.

    Where they agree, a fixed run has to agree bit for bit, and to end as they do. Where they do
    not, a batch cannot be compared, and a loss has to be as near to one of theirs as theirs are to
    each other. `least` is the share of a loss that is always near enough.
    """

    runs: tuple[Trace, ...]
    least: float = 0.0
    _reach: list[float | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_reach", _reaches([run.losses for run in self.runs]))

    @property
    def agrees(self) -> bool:
        """Whether all runs are the same, as far as they have come."""
        return all(first_difference(one, other) is None for one, other in pairwise(self.runs))

    def batch_fault(self, at: int, batch: tuple[int, str]) -> Difference | None:
        """What is wrong with the batch that came as number `at`, from 0."""
        known = {run.batches[at] for run in self.runs if at < len(run.batches)}
        if len(known) != 1 or batch in known:
            return None
        ((loader, digest),) = known
        if not is_read(digest):
            return None
        return Difference(f"batch {at + 1} (loader {loader + 1})", digest[:12], batch[1][:12])

    def loss_fault(self, at: int, loss: str) -> Difference | None:
        """The same for the loss of a backward pass."""
        known = [run.losses[at] for run in self.runs if at < len(run.losses)]
        if len(known) < len(self.runs) or loss in known:
            return None
        reach, value = self._reach[at], number_of(loss)
        if reach is None:
            return None
        for one in map(number_of, known):
            if abs(value - one) <= max(reach, self.least * abs(one)):
                return None
        return Difference(f"loss of backward pass {at + 1}", _shown(known[0]), _shown(loss))

    def fault(self, fixed: Trace) -> Difference | None:
        """The first thing that is wrong with a run, as far as all have come."""
        for at, batch in enumerate(fixed.batches):
            if (difference := self.batch_fault(at, batch)) is not None:
                return difference
        for at, loss in enumerate(fixed.losses):
            if (difference := self.loss_fault(at, loss)) is not None:
                return difference
        return self._end_fault(fixed)

    def _end_fault(self, fixed: Trace) -> Difference | None:
        if any(_end_difference(*pair) is not None for pair in combinations(self.runs, 2)):
            return None
        found = (_end_difference(run, fixed) for run in self.runs)
        return next((difference for difference in found if difference is not None), None)

    def compared(self, fixed: Trace) -> str:
        """What could be compared with a run that has no fault, and what not, in words."""
        batches, losses = compared(self.runs[0], fixed)
        if not batches and not losses:
            return "no batch and no loss was seen: nothing could be compared"
        losses = min(losses, len(self._reach))  # further on, not all runs have one
        read = [at for at in range(batches) if self._can_be_read(at, fixed)]
        same = sum(len({run.batches[at] for run in self._long(at)}) == 1 for at in read)
        unread = sum(not self._has_losses(at, fixed) for at in range(losses))
        exact = sum(reach == 0.0 for reach in self._reach[:losses])
        counts = [
            _count(number, what) for number, what in ((same, "batch"), (exact, "loss")) if number
        ]
        parts = []
        if counts:
            are = "is" if same + exact == 1 else "are"
            parts.append(f"{' and '.join(counts)} {are} equal, bit for bit")
        if len(read) < batches:
            parts.append(f"{_count(batches - len(read), 'batch')} could not be read")
        if unread:
            parts.append(f"{_count(unread, 'loss')} could not be read")
        if (differ := len(read) - same) > 0:
            verb = "differs" if differ == 1 else "differ"
            parts.append(f"{_count(differ, 'batch')} {verb} between runs of the script itself")
        wild = sum(
            reach is None and self._has_losses(at, fixed)
            for at, reach in enumerate(self._reach[:losses])
        )
        if wild:
            parts.append(
                f"{_count(wild, 'loss')} could not be compared, as runs of the script"
                " itself are too far apart"
            )
        if (near := losses - exact - unread - wild) > 0:
            are = "is" if near == 1 else "are"
            parts.append(
                f"{_count(near, 'loss')} {are} no further from those of the script than"
                f" {_WIDER:g} times what its own {len(self.runs)} runs are apart"
            )
        return "; ".join(parts) or "no batch and no loss could be compared"

    def _can_be_read(self, at: int, fixed: Trace) -> bool:
        return all(is_read(run.batches[at][1]) for run in (*self._long(at), fixed))

    def _has_losses(self, at: int, fixed: Trace) -> bool:
        return all(is_read(run.losses[at]) for run in (*self.runs, fixed))

    def _long(self, at: int) -> list[Trace]:
        return [run for run in self.runs if at < len(run.batches)]


def _count(number: int, what: str) -> str:
    return f"{number} {what if number == 1 else what + 'es'}"


def first_difference(before: Trace, after: Trace) -> Difference | None:
    """Compares as much as both have seen, bit for bit.

    >>> print(first_difference(Trace(losses=["0x1p+0"]), Trace(losses=["0x1p+1"])))
    loss of backward pass 1: 1.0 became 2.0
    """
    return Reference((before,)).fault(after)


def compared(before: Trace, after: Trace) -> tuple[int, int]:
    """How many batches and losses both have."""
    return (
        min(len(before.batches), len(after.batches)),
        min(len(before.losses), len(after.losses)),
    )


def _reaches(runs: Sequence[Sequence[str]]) -> list[float | None]:
    """How far a loss may be from the nearest of the runs'; None where that cannot be told."""
    spreads = []
    for losses in zip(*runs, strict=False):
        values = [number_of(loss) for loss in losses]
        spread = max(values) - min(values) if all(map(math.isfinite, values)) else math.inf
        spreads.append(spread if len(set(losses)) > 1 else 0.0)
    reaches: list[float | None] = []
    for at in range(len(spreads)):
        most = max(spreads[: at + _AHEAD + 1])
        is_known = math.isfinite(most) and all(is_read(losses[at]) for losses in runs)
        reaches.append(_WIDER * most if is_known else None)
    return reaches


def _shown(loss: str) -> str:
    return repr(number_of(loss))


def _end_difference(before: Trace, after: Trace) -> Difference | None:
    """Where at least one ended by itself. Windows end after steps or seconds: how far a run came in
    one says nothing, unless the other was over sooner.
    """
    if "script" not in (before.ended, after.ended):
        return None
    if before.ended == after.ended:
        if before.exit_code != after.exit_code:
            return Difference("exit code", str(before.exit_code), str(after.exit_code))
        is_same = _came_to(before) == _came_to(after) and len(before.ends) == len(after.ends)
    else:
        whole, cut = (before, after) if before.ended == "script" else (after, before)
        reached = zip(_came_to(whole), _came_to(cut), strict=True)
        is_same = all(most >= least for most, least in reached)
        if not (whole.losses or cut.losses):
            # Steps are batches then, and all of them counted.
            is_same = is_same and len(whole.ends) >= len(cut.ends)
    return None if is_same else Difference("end", _end_of(before), _end_of(after))


def _came_to(run: Trace) -> tuple[int, int]:
    return len(run.batches), len(run.losses)


def _end_of(run: Trace) -> str:
    batches, losses = _came_to(run)
    what = "the script was over" if run.ended == "script" else "it went on"
    return f"{what} after {len(run.ends)} steps with {batches} batches and {losses} losses"
