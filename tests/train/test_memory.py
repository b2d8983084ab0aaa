"""Memory at its peak, of one call alone; what a call keeps."""

from pathlib import Path

import pytest
import torch

from slipstream import memory
from slipstream.memory import leak_of, peak_of

CPU = torch.device("cpu")
MEGABYTE = 1 << 20


def take(megabytes: int) -> None:
    taken = [torch.ones(MEGABYTE // 4) for _ in range(megabytes)]
    assert len(taken) == megabytes


@pytest.mark.parametrize("megabytes", [300, 10, 100, 1])
def test_a_peak_is_of_its_call_alone(megabytes: int) -> None:
    before = torch.ones(20 * MEGABYTE)
    peak = peak_of(lambda: take(megabytes), CPU)
    assert peak.bytes is not None
    assert megabytes <= peak.bytes / MEGABYTE < megabytes + 0.1
    assert peak.mb == peak.bytes / 1e6
    assert peak.headroom is not None
    assert 0 < peak.headroom < 1
    assert len(before) == 20 * MEGABYTE


def test_more_memory_leaves_less() -> None:
    small, large = (peak_of(lambda n=n: take(n), CPU).headroom for n in (1, 900))  # type: ignore[misc]
    assert small is not None
    assert large is not None
    assert small > large


def test_an_error_comes_through_and_stops_the_counting() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        peak_of(fail, CPU)
    assert peak_of(lambda: take(3), CPU).bytes is not None


def test_under_another_profiler_it_is_not_known() -> None:
    called = []
    with torch.autograd.profiler.profile():
        peak = peak_of(lambda: called.append(1), CPU)
        leak = leak_of(lambda: called.append(1), CPU)
    assert (peak.bytes, peak.mb, peak.headroom, leak) == (None, None, None, None)
    assert called == [1, 1]


def test_limits_of_a_container_are_read(tmp_path: Path) -> None:
    assert memory._limit(tmp_path) is None
    (tmp_path / "memory.current").write_text("100\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._limit(tmp_path) is None
    (tmp_path / "memory.max").write_text("900\n")
    assert memory._limit(tmp_path) == (100, 900)
    old = tmp_path / "old" / "memory"
    old.mkdir(parents=True)
    (old / "memory.usage_in_bytes").write_text("7")
    (old / "memory.limit_in_bytes").write_text("9")
    assert memory._limit(tmp_path / "old") == (7, 9)


def test_what_every_call_keeps_is_found() -> None:
    kept = []
    assert leak_of(lambda: kept.append(torch.ones(MEGABYTE)), CPU) == 4 * MEGABYTE
    assert leak_of(lambda: take(20), CPU) == 0
    sizes = iter([8 * MEGABYTE, 1, 8 * MEGABYTE, 1, 1, 1, 1])
    assert leak_of(lambda: kept.append(torch.ones(next(sizes))), CPU) == 0, "not every call"
