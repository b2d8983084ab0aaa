"""Times two ways to do the same against each other, when the window is over."""

import math
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO

import torch

from slipstream.doctor.record.machine import cuda_is_in_use

_MOST_PAIRS = 40
_LEAST_PAIRS = 3
_SLOW_MS = 50.0  # warm after one pass
# A device works while the next pass is queued, in the loop too: alone, a short pass would be timed
# with the processor's launches, and their noise.
_QUEUED_MS, _MOST_QUEUED = 20.0, 8
Work = Callable[[], object]


class Stopwatch:
    """A budget of time that many comparisons share."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.perf_counter() + seconds

    @property
    def left_s(self) -> float:
        """Seconds."""
        return self._ends - time.perf_counter()

    def compare(self, now: Work, then: Work, seconds: float = 1.0) -> list[list[float]] | None:
        """Milliseconds of both, in turns: [[now, …], [then, …]]. None where time does not suffice,
        or one of them fails.
        """
        if self.left_s <= 0:
            return None
        times: list[list[float]] = [[], []]
        try:
            both = _ms(now) + _ms(then)
            fits = _LEAST_PAIRS * both * 1e-3 < min(seconds, self.left_s)
            # A first pass may take much longer than those behind it: it searches for algorithms.
            if both < _SLOW_MS or (not fits and both * 1e-3 < self.left_s):
                both = _ms(now) + _ms(then)
            allowed = min(seconds, self.left_s)
            if _LEAST_PAIRS * both * 1e-3 > allowed:
                return None
            passes = _queued(both / 2) if cuda_is_in_use() else 1
            ends = time.perf_counter() + allowed
            for turn in range(_MOST_PAIRS):
                order = (0, 1) if turn % 2 else (1, 0)
                for which in order:
                    times[which].append(_ms((now, then)[which], passes))
                if turn + 1 >= _LEAST_PAIRS and time.perf_counter() > ends:
                    break
        except Exception:  # the user's own code, run in another way than it was written for
            return None
        return times


def _queued(pass_ms: float) -> int:
    return min(_MOST_QUEUED, max(1, math.ceil(_QUEUED_MS / pass_ms)))


def _ms(work: Work, passes: int = 1) -> float:
    """Of one pass, where so many follow each other."""
    on_device = cuda_is_in_use()
    if on_device:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(passes):
        work()
    if on_device:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3 / passes


@contextmanager
def undisturbed() -> Iterator[None]:
    """Random numbers, threads and switches are afterwards what they were; nothing is printed."""
    python_state, threads = random.getstate(), torch.get_num_threads()
    anomaly, check_nan = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    # Replicas of a model draw on all.
    devices = range(torch.cuda.device_count()) if cuda_is_in_use() else []
    with (
        torch.random.fork_rng(devices=devices),
        warnings.catch_warnings(),
        redirect_stdout(StringIO()),
        torch.enable_grad(),
    ):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random.setstate(python_state)
            torch.set_num_threads(threads)
            torch.autograd.set_detect_anomaly(anomaly, check_nan)
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
