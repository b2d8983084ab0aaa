"""A clock for tests of what is faster: what is timed says how long it takes, and a busy machine is
nothing beside that.
"""

import time
from types import ModuleType, SimpleNamespace

import pytest


class Clock:
    """What was told, beside the time that really went by."""

    told_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.told_s += seconds

    def now(self) -> float:
        return time.perf_counter() + self.told_s


_clock = Clock()
sleep = _clock.sleep  # for tenths at least: a busy machine halts a process for hundredths


def replace_clock(patch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Have `modules` read the clock that `sleep` moves."""
    own = SimpleNamespace(perf_counter=_clock.now, monotonic=_clock.now, sleep=sleep)
    for module in modules:
        patch.setattr(module, "time", own)
