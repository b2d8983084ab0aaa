"""`slipstream.Timer`."""

import math
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

import slipstream
from slipstream import timer as timer_file
from slipstream.errors import UsageError
from slipstream.timer import Laps, Timer


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.ns = 1_000

    def perf_counter_ns(self) -> int:
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timer_file, "time", clock)
    return clock


class Device:
    """A made-up torch: work that is queued takes its time when somebody waits for it."""

    def __init__(self, clock: Clock, *, started: bool = True, used: tuple[int, ...] = (0,)) -> None:
        self.queued = 0.0
        self.waited_for: list[object] = []
        kind = SimpleNamespace(type="cuda")
        self.cuda = SimpleNamespace(
            is_initialized=lambda: started, is_available=lambda: True, device_count=lambda: 4
        )
        self.accelerator = SimpleNamespace(
            current_accelerator=lambda: kind, synchronize=self.synchronize
        )
        self._C = SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index in used)
        self.clock = clock

    def get_device_module(self, kind: object) -> object:
        return self.cuda

    def synchronize(self, device: object) -> None:
        self.waited_for.append(device)
        self.clock.sleep(self.queued)
        self.queued = 0.0


def test_a_block_is_timed(clock: Clock) -> None:
    with Timer(device="cpu") as timer:
        clock.sleep(0.25)
        assert timer.seconds == 0.25
        clock.sleep(0.25)
    clock.sleep(3)
    assert timer.seconds == 0.5
    assert str(timer) == "whole block: 500 ms"
    with timer:
        clock.sleep(1)
    assert timer.seconds == 1.0


def test_laps_have_statistics(clock: Clock) -> None:
    timer = Timer(device="cpu", warmup=2)
    for seconds in (9, 9, 1, 2, 3, 4):
        with timer.lap("step"):
            clock.sleep(seconds)
    with timer.lap():
        clock.sleep(1)
    laps = timer.laps["step"]
    assert laps.seconds == (1, 2, 3, 4)
    assert (laps.count, laps.mean_s, laps.median_s, laps.min_s, laps.max_s) == (4, 2.5, 2.5, 1, 4)
    assert laps.std_s == pytest.approx(1.2909944)
    assert laps.p95_s == pytest.approx(3.85)
    assert timer.laps["lap"].count == 0
    assert math.isnan(timer.laps["lap"].mean_s)


def test_few_laps_have_no_deviation() -> None:
    one, none = Laps((2.0,)), Laps(())
    assert (one.mean_s, one.median_s, one.p95_s) == (2, 2, 2)
    for unknown in (one.std_s, none.std_s, none.p95_s, none.median_s, none.min_s, none.max_s):
        assert math.isnan(unknown)


def test_text_is_an_aligned_table(clock: Clock) -> None:
    timer = Timer(device="cpu", warmup=1)
    assert str(timer) == "Timer: nothing measured yet"
    for seconds in (1, 0.0123, 0.0125):
        with timer.lap("forward"):
            clock.sleep(seconds)
    with timer.lap("save"):
        clock.sleep(1)
    assert str(timer).splitlines() == [
        "         count     mean   median      min      max     std      p95",
        "forward      2  12.4 ms  12.4 ms  12.3 ms  12.5 ms  141 µs  12.5 ms",
        "save         0        -        -        -        -       -        -",
    ]


def test_queued_work_belongs_to_the_lap_that_queued_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(clock)
    monkeypatch.setitem(sys.modules, "torch", device)
    timer = Timer()
    device.queued = 5
    with timer.lap("forward"):
        device.queued = 1
    assert timer.laps["forward"].seconds == (1,)
    assert device.waited_for == [0, 0]


def test_all_devices_in_use_are_waited_for(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(clock, used=(1, 3))
    monkeypatch.setitem(sys.modules, "torch", device)
    with Timer():
        pass
    assert device.waited_for == [1, 3, 1, 3]


def test_an_accelerator_that_nobody_uses_is_left_alone(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(clock, started=False)
    monkeypatch.setitem(sys.modules, "torch", device)
    with Timer():
        pass
    assert device.waited_for == []


def test_cpu_never_waits(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(clock)
    monkeypatch.setitem(sys.modules, "torch", device)
    for name in ("cpu", "cpu:0"):
        with Timer(device=name):
            pass
    assert device.waited_for == []


def test_a_lap_that_raises_does_not_count(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(clock)
    monkeypatch.setitem(sys.modules, "torch", device)
    timer = Timer(warmup=1)
    with pytest.raises(KeyError), timer, timer.lap("step"):
        clock.sleep(2)
        raise KeyError
    assert timer.laps == {}
    assert timer.seconds == 2
    assert len(device.waited_for) == 2  # at the starts
    for _ in range(2):
        with timer.lap("step"):
            clock.sleep(1)
    assert timer.laps["step"].seconds == (1,)


def test_a_device_that_fails_stops_the_lap(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(clock)
    monkeypatch.setitem(sys.modules, "torch", device)
    timer = Timer()

    def fail(_: object) -> None:
        raise RuntimeError("device-side assert")

    with pytest.raises(RuntimeError, match="device-side"), timer.lap():
        device.accelerator.synchronize = fail
    device.accelerator.synchronize = device.synchronize
    assert timer.laps == {}
    with timer.lap():
        pass
    assert timer.laps["lap"].count == 1


def test_names_nest_and_the_same_name_does_not(clock: Clock) -> None:
    timer = Timer(device="cpu")
    with timer, timer.lap("step"), timer.lap("forward"):
        clock.sleep(1)
        with pytest.raises(UsageError, match='lap "step" is running already'), timer.lap("step"):
            pass
        with pytest.raises(UsageError, match="block is running already"):
            timer.__enter__()
    assert timer.laps["step"].seconds == timer.laps["forward"].seconds == (1,)
    assert timer.seconds == 1


def test_another_thread_is_refused() -> None:
    timer = Timer(device="cpu")
    caught: list[Exception] = []

    def use() -> None:
        try:
            with timer.lap():
                pass
        except UsageError as error:
            caught.append(error)

    with timer:
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert "belongs to one thread" in str(caught[0])


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(UsageError, match="warmup is -1"):
        Timer(warmup=-1)
    with pytest.raises(UsageError, match="device is 'gpu'"):
        Timer(device="gpu")
    with pytest.raises(UsageError, match="not measured a block"):
        Timer().seconds  # noqa: B018


def test_real_time_with_real_torch() -> None:
    import torch

    for device in (None, "cuda:0", torch.device("cpu")):
        with Timer(device=device) as timer, timer.lap():
            time.sleep(0.02)
        assert 0.02 <= timer.laps["lap"].median_s <= timer.seconds < 2
    if not torch.cuda.is_available():
        assert not torch.cuda.is_initialized()


def test_timing_does_not_import_torch() -> None:
    script = """
import sys, slipstream
with slipstream.Timer() as timer:
    with timer.lap(): pass
print(timer.seconds > 0, "torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "True False\n"
    assert slipstream.Timer is Timer
