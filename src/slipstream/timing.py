"""Calls timed in turns: each round runs all of them in another order, so that whatever slows the
machine slows each of them, and what is compared was measured in the same seconds.
"""

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_BLOCK_S = 0.005  # a clock's own cost is nothing beside it
# Threads of one library spin for a while behind a call, and those of the next are spread late.
# With less than these, calls were slower in turns than alone.
_REST_S = 0.02
_WARM_S = 0.02
_LONG_S = 0.1  # for such a call this is no matter
_LEAST_ROUNDS = 6
_MOST_ROUNDS = 400
_DRAWS = 1000
_LEAST_GAIN = 0.02

Call = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """How many times faster, with the bounds of about 95 %. Above 1: faster.

    >>> str(Ratio(1.5, 1.42, 1.61))
    '1.50 x (1.42 to 1.61)'
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} x ({self.low:.2f} to {self.high:.2f})"


def time_in_turns(
    calls: Mapping[str, Call], *, seconds: float, wait: Call | None = None,
    is_settled: bool = False, seed: int = 0,
) -> dict[str, list[float]]:  # fmt: skip
    """Seconds of one call of each, round by round, for about `seconds` altogether.

    `wait` returns when the device has nothing left to do. With `is_settled`, each is timed as if it
    ran alone: there is a pause before its turn, and a few calls that do not count. Calls of several
    libraries, each with threads of its own, are many times slower otherwise. At least six rounds
    are made, however long they take. The garbage collector rests meanwhile.

    >>> found = time_in_turns({"a": lambda: sum(range(99)), "b": lambda: None}, seconds=0.1)
    >>> sorted(found), len(found["a"]) == len(found["b"]) >= 6
    (['a', 'b'], True)
    """
    own = random.Random(seed)  # not the caller's
    order = list(calls)
    lasts = {name: _lasts(calls[name], wait, is_settled) for name in order}
    repeats = {name: max(1, math.ceil(_BLOCK_S / lasts[name])) for name in order}
    taken: dict[str, list[float]] = {name: [] for name in order}
    collects = gc.isenabled()
    gc.disable()
    try:
        until = time.perf_counter() + seconds
        for number in range(_MOST_ROUNDS):
            if number >= _LEAST_ROUNDS and time.perf_counter() > until:
                break
            own.shuffle(order)
            for name in order:
                if is_settled:
                    _settle(calls[name], lasts[name])
                taken[name].append(_block_s(calls[name], repeats[name], wait))
    finally:
        if collects:
            gc.enable()
    return taken


def ratio_of(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """The median over rounds of how many times faster `after` is; pairs are drawn again for the
    bounds.

    >>> ratio_of([0.2, 0.22, 0.2], [0.1, 0.11, 0.1])
    Ratio(value=2.0, low=2.0, high=2.0)
    """
    logs = [math.log(one / other) for one, other in zip(before, after, strict=True)]
    own = random.Random(0)
    drawn = sorted(statistics.median(own.choices(logs, k=len(logs))) for _ in range(_DRAWS))
    middle, low, high = (
        statistics.median(logs),
        drawn[int(0.025 * _DRAWS)],
        drawn[int(0.975 * _DRAWS)],
    )
    return Ratio(round(math.exp(middle), 4), round(math.exp(low), 4), round(math.exp(high), 4))


def least_gain(noise: Ratio) -> float:
    """How many times faster one has to be to be surely faster: by two per cent, and by more than
    the same call, timed twice, is faster or slower than itself.

    >>> least_gain(Ratio(1.0, 0.95, 1.01))
    1.05
    """
    return 1 + max(_LEAST_GAIN, noise.high - 1, 1 - noise.low)


def _lasts(call: Call, wait: Call | None, is_settled: bool) -> float:
    """Seconds of a call, once it is warm."""
    first = _block_s(call, 1, wait)
    if is_settled:
        _settle(call, first)
    return max(_block_s(call, 1, wait), 1e-7)


def _settle(call: Call, lasts: float) -> None:
    time.sleep(_REST_S)
    start = time.perf_counter()
    while lasts < _LONG_S and time.perf_counter() - start < _WARM_S:
        call()


def _block_s(call: Call, repeats: int, wait: Call | None) -> float:
    if wait is not None:
        wait()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    if wait is not None:
        wait()
    return (time.perf_counter() - start) / repeats
