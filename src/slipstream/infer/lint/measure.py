"""Cases measured in turns: the layers as they are, the same again, and each alternative."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from slipstream.infer.lint.case import Case
from slipstream.infer.lint.finding import Other, Row
from slipstream.infer.lint.layer import call_of
from slipstream.timing import Ratio, least_gain, ratio_of, time_in_turns

_LEAST_CALLS = 8  # of each, with those that warm up


@dataclass(frozen=True)
class Turns:
    """How long may be measured. `wait` returns when the device is done."""

    seconds: float
    left_s: float
    wait: Callable[[], object] | None


def measure(case: Case, turns: Turns) -> Row:
    """What a case takes and what its alternatives do. Gradients are off where this is called."""
    row = Row(str(case), case.where, count=len(case.where))
    row.flops = sum(layer.flops for layer in case.now)
    one_s = case.seconds / row.count
    if one_s * _LEAST_CALLS * (2 + len(case.others)) > turns.left_s:
        row.state, row.why = "unmeasured", "no time was left"
        return row
    try:
        taken = _time(case, turns)
    except (RuntimeError, MemoryError) as error:  # a device without memory for one more
        row.state, row.why = "unmeasured", str(error).strip().split("\n")[0][:120]
        return row
    row.now_ms = 1e3 * statistics.median(taken["now"])
    noise = ratio_of(taken["now"], taken["again"])
    for what, layers in case.others.items():
        speed = ratio_of(taken["now"], taken[what])
        flops = sum(layer.flops for layer in layers)
        # Not the median of its own times: in turns with "now" it is the ratio that is sure.
        row.others.append(Other(what, row.now_ms / speed.value, flops, speed))
    _judge(row, least_gain(noise))
    return row


def _time(case: Case, turns: Turns) -> dict[str, list[float]]:
    now = call_of(case.now)
    calls = {"now": now, "again": now}
    calls |= {what: call_of(layers) for what, layers in case.others.items()}
    return time_in_turns(calls, seconds=turns.seconds, wait=turns.wait)


def _judge(row: Row, least: float) -> None:
    """The alternative that surely saves most. One of fewer operations has to be faster by more
    than it does less.
    """
    assert row.now_ms is not None
    for other in row.others:
        fair = min(1.0, other.flops / (row.flops or 1))
        if other.speed.low * fair <= least:
            continue
        gains = [row.count * row.now_ms * (fair - 1 / speed) for speed in _bounds(other.speed)]
        if gains[0] > row.gain_ms:
            row.state, row.best = "gain", other.what
            row.gain_ms, row.gain_low_ms, row.gain_high_ms = gains


def _bounds(speed: Ratio) -> tuple[float, float, float]:
    return speed.value, speed.low, speed.high
