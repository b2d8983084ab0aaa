"""Whether two runs of a script did the same."""

from dataclasses import dataclass

from slipstream.run.trace import Trace


@dataclass(frozen=True)
class Difference:
    """The first thing in which two runs differ."""

    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what}: {self.before} became {self.after}"


def first_difference(before: Trace, after: Trace) -> Difference | None:
    """Compares as much as both have seen, bit for bit.

    >>> print(first_difference(Trace(losses=["0x1p+0"]), Trace(losses=["0x1p+1"])))
    loss of backward pass 1: 1.0 became 2.0
    """
    for number, (one, other) in enumerate(zip(before.batches, after.batches, strict=False), 1):
        if one != other:
            what = f"batch {number} (loader {one[0] + 1})"
            return Difference(what, one[1][:12], other[1][:12])
    for number, (loss, fixed) in enumerate(zip(before.losses, after.losses, strict=False), 1):
        if loss != fixed:
            return Difference(f"loss of backward pass {number}", _shown(loss), _shown(fixed))
    return None


def compared(before: Trace, after: Trace) -> tuple[int, int]:
    """How many batches and losses both have."""
    return (
        min(len(before.batches), len(after.batches)),
        min(len(before.losses), len(after.losses)),
    )


def _shown(loss: str) -> str:
    return repr(float.fromhex(loss))
