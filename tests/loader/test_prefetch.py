"""The prefetcher's threads, queue and ends, over a lane whose copies pass when they are told to.

The real lane is tested on a GPU, in tests/gpu/test_prefetch.py.
"""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream.errors import InternalError, UsageError
from slipstream.loader import prefetch
from slipstream.loader.cuda_lane import CudaLane, Sent
from slipstream.loader.prefetch import DevicePrefetcher, prefetch_to_device
from tests.loader.fake_lane import (
    PATIENCE_S,
    Counted,
    FakeLane,
    LyingLane,
    Ring,
    Stuck,
    run_copies_late,
    stays,
    tensors,
    wait_for,
)


def overwritten(lane: FakeLane, slots: int, batches: int) -> int:
    """How many of all batches, kept to the end, do not hold what was sent."""
    ring = Ring(slots, batches)
    stop = threading.Event()
    gpu = threading.Thread(target=run_copies_late, args=(lane, stop))
    gpu.start()
    try:
        kept = list(DevicePrefetcher(ring, lane, depth=3))
        wait_for(lambda: all(ticket.has_passed for ticket in lane.tickets), "end of copies")
    finally:
        stop.set()
        gpu.join()
    assert [batch["value"] for batch in kept] == list(range(batches))
    assert ring.closed == 1
    return sum(bool((batch["x"] != batch["value"] % 251).any()) for batch in kept)


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_host_memory_lives_until_its_copy_has_passed(slots: int) -> None:
    assert overwritten(FakeLane(auto=False), slots, 100) == 0


def test_the_test_above_catches_a_release_that_is_too_early() -> None:
    assert overwritten(LyingLane(auto=False), 2, 30) > 0


def test_a_host_batch_is_let_go_while_the_consumer_is_away() -> None:
    lane = FakeLane(auto=False)
    ring = Ring(4, 10)
    batches = DevicePrefetcher(ring, lane, depth=2)
    wait_for(lambda: len(lane.tickets) == 1, "first copy")
    assert stays(lambda: len(ring.free) == 3 and len(lane.tickets) == 1)
    lane.tickets[0].passes()
    wait_for(lambda: len(lane.tickets) == 2, "second copy")
    lane.tickets[1].passes()
    wait_for(lambda: len(ring.free) == 4, "free slots, though nobody took a batch")
    batches.close()


def test_batches_in_order_then_the_end_again_and_again() -> None:
    source = Counted(*tensors(5), "no tensor")
    batches = DevicePrefetcher(source, FakeLane())
    values = [batch if isinstance(batch, str) else batch[0].item() for batch in batches]
    assert values == [0, 1, 2, 3, 4, "no tensor"]
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(batches)
    assert source.closed.is_set() and not batches._thread.is_alive()
    stats = batches.stats
    assert (stats.batches, stats.copied_bytes, stats.pin_s) == (6, 5 * 16, 6 * 0.25)
    assert 0 <= stats.mean_depth <= 2 and stats.wait_s >= 0


@pytest.mark.parametrize(("depth", "ahead"), [(1, 1), (4, 4), (None, 2)])
def test_no_more_than_depth_are_taken_ahead(depth: int | None, ahead: int) -> None:
    source = Counted(*tensors(20))
    batches = DevicePrefetcher(source, FakeLane(), depth=depth)
    wait_for(lambda: source.asked == ahead, "prefetched batches")
    assert stays(lambda: source.asked == ahead)
    next(batches)
    wait_for(lambda: source.asked == ahead + 1, "one more")
    assert stays(lambda: source.asked == ahead + 1)
    batches.close()


@pytest.mark.parametrize(("budget", "sent"), [(0, 1), (100, 1), (800, 2), (10_000, 6)])
def test_waiting_bytes_are_bounded_but_one_batch_always_passes(budget: int, sent: int) -> None:
    lane = FakeLane()
    batches = DevicePrefetcher(Counted(*tensors(8, 100)), lane, depth=6, byte_budget=budget)
    wait_for(lambda: len(lane.tickets) == sent, "batches on the device")
    assert stays(lambda: len(lane.tickets) == sent)
    next(batches)
    wait_for(lambda: len(lane.tickets) > sent, "one more for the one taken")
    assert stays(lambda: len(lane.tickets) == sent + 1)
    assert len(list(batches)) == 7


def test_copies_are_held_while_the_consumers_stream_is_behind() -> None:
    lane = FakeLane()
    lane.marks_pass = False
    batches = DevicePrefetcher(Counted(*tensors(9, 100)), lane, depth=1, byte_budget=1200)
    for number in range(4):
        wait_for(lambda n=number: len(lane.tickets) > n, "copy")  # type: ignore[misc]
        next(batches)  # in the end three are marked: 1200 bytes wait for the consumer's stream
    assert stays(lambda: len(lane.tickets) == 4)
    lane.marks[0].passes()
    wait_for(lambda: len(lane.tickets) == 5, "a copy when the stream went on")
    lane.marks_pass = True
    for mark in lane.marks:
        mark.passes()
    assert len(list(batches)) == 5
    assert batches.stats.held_s > 0.04


def fail_on_purpose() -> Iterator[torch.Tensor]:
    yield from tensors(3)
    raise ValueError("sample 3 is broken")


def test_an_error_comes_after_the_batches_before_it_with_its_traceback() -> None:
    batches = DevicePrefetcher(fail_on_purpose(), FakeLane(), depth=8)
    assert [next(batches)[0].item() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="sample 3 is broken") as caught:
        next(batches)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "fail_on_purpose" in names
    with pytest.raises(StopIteration):
        next(batches)
    assert not batches._thread.is_alive()


def test_an_error_of_the_lane_reaches_the_consumer() -> None:
    class Full(FakeLane):
        def send(self, batch: Any) -> tuple[Sent, list[object]]:
            raise MemoryError("device is full")

    source = Counted(*tensors(2))
    with pytest.raises(MemoryError, match="device is full"):
        next(DevicePrefetcher(source, Full()))
    assert source.closed.is_set()


def test_errors_are_not_kept_alive_by_cycles() -> None:
    class Noted(Exception):
        pass

    made: list[weakref.ref[Noted]] = []

    def broken() -> Iterator[None]:
        yield
        made.append(weakref.ref(noted := Noted()))
        try:
            raise noted
        finally:
            del noted

    batches = DevicePrefetcher(broken(), FakeLane())
    next(batches)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(Noted):
            next(batches)
        assert made[0]() is None
    finally:
        gc.enable()


def test_close_ends_thread_and_generator_and_can_be_repeated() -> None:
    ended = threading.Event()

    def endless() -> Iterator[torch.Tensor]:
        try:
            while True:
                yield torch.ones(3)
        finally:
            ended.set()

    batches = DevicePrefetcher(endless(), FakeLane())
    kept = next(batches)
    batches.close()
    assert ended.is_set() and not batches._thread.is_alive()
    batches.close()
    with pytest.raises(StopIteration):
        next(batches)
    assert kept.tolist() == [1, 1, 1]


def test_an_error_nobody_got_to_is_forgotten_by_close() -> None:
    source = Counted(torch.ones(1), ValueError("later"))
    batches = DevicePrefetcher(source, FakeLane())
    assert source.closed.wait(PATIENCE_S)
    batches.close()
    with pytest.raises(StopIteration):
        next(batches)


def test_an_error_of_the_sources_close_is_raised_once() -> None:
    class Sulky(Counted):
        def close(self) -> None:
            raise OSError("cannot close")

    early = DevicePrefetcher(Sulky(*tensors(9)), FakeLane())
    with pytest.raises(OSError, match="cannot close"):
        early.close()
    early.close()
    with pytest.raises(OSError, match="cannot close"):
        list(DevicePrefetcher(Sulky(*tensors(2)), FakeLane()))


def test_a_dropped_iterator_is_collected_and_ends_its_thread() -> None:
    source = Counted(*tensors(50))
    lane = FakeLane()
    for batch in (batches := DevicePrefetcher(source, lane)):
        assert batch[0].item() == 0
        break
    thread, gone = batches._thread, weakref.ref(batches)
    del batches
    assert gone() is None, "something else holds the iterator"
    assert lane.ended.is_set() and source.closed.is_set() and not thread.is_alive()


def test_close_does_not_let_go_of_memory_that_is_being_copied() -> None:
    lane = FakeLane(auto=False)
    ring = Ring(2, 9)
    batches = DevicePrefetcher(ring, lane)
    kept = next(batches)
    passing = threading.Timer(0.1, lane.tickets[0].passes)
    passing.start()
    assert len(ring.free) == 1
    batches.close()
    assert (kept["x"] == 0).all() and len(lane.tickets) == 1, "close waited for the copy"
    assert len(ring.free) == 2 and ring.closed == 1


def test_a_copy_that_never_passes_ends_close_and_loses_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefetch, "_GRACE_S", 0.1)
    abandoned: list[object] = []
    monkeypatch.setattr(prefetch, "_abandoned", abandoned)
    ring = Ring(2, 9)
    batches = DevicePrefetcher(ring, FakeLane(auto=False))
    next(batches)
    batches.close()
    wait_for(lambda: not batches._thread.is_alive(), "end of the thread")
    assert len(ring.free) == 1 and len(abandoned) == 1


def test_a_source_that_does_not_return_is_interrupted() -> None:
    source = Stuck()
    batches = DevicePrefetcher(source, FakeLane(), interrupt=source.interrupted.set)
    wait_for(lambda: source.asked == 1, "question")
    began = time.monotonic()
    batches.close()
    assert time.monotonic() - began < PATIENCE_S / 2
    assert source.closed.is_set() and not batches._thread.is_alive()


def test_close_does_not_wait_for_ever_for_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "_GRACE_S", 0.05)
    source = Stuck()
    batches = DevicePrefetcher(source, FakeLane())
    wait_for(lambda: source.asked == 1, "question")
    batches.close()
    assert not source.closed.is_set(), "the source still runs, in its own thread"
    source.interrupted.set()
    assert source.closed.wait(PATIENCE_S)
    batches._thread.join(PATIENCE_S)


def test_a_thread_that_died_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "_CHECK_S", 0.01)
    monkeypatch.setattr(prefetch._Queue, "finish", lambda *_: None)
    with pytest.raises(InternalError, match="prefetch thread is gone"):
        list(DevicePrefetcher(Counted(*tensors(3)), FakeLane()))


def test_a_keyboard_interrupt_loses_no_batch() -> None:
    asked = threading.Event()
    go_on = threading.Event()

    def slow() -> Iterator[torch.Tensor]:
        asked.set()
        go_on.wait(PATIENCE_S)
        yield from tensors(3)

    def press() -> None:
        asked.wait(PATIENCE_S)
        time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    batches = DevicePrefetcher(slow(), FakeLane())
    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    pressing.join()
    go_on.set()
    assert [batch[0].item() for batch in batches] == [0, 1, 2]


def test_a_forked_child_gets_an_error_and_does_not_hang() -> None:
    batches = DevicePrefetcher(Counted(*tensors(9)), FakeLane())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            code = 3
            try:
                signal.alarm(8)
                batches._queue._changed = None  # type: ignore[assignment]  # not to be touched
                next(batches)
            except UsageError as error:
                batches.close()
                code = 0 if "forked" in str(error) else 4
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(batches)) == 9, "the parent's goes on"


@pytest.mark.slow
@pytest.mark.parametrize("source", ["itertools.repeat(torch.ones(3))", "stuck()"])
def test_the_interpreter_ends_though_nobody_closed(source: str) -> None:
    script = f"""
import itertools, threading, time, torch
from slipstream.loader import prefetch
from tests.loader.fake_lane import FakeLane

def stuck():
    yield torch.ones(3)
    time.sleep(600)

prefetch._GRACE_S = 0.5
batches = prefetch.DevicePrefetcher({source}, FakeLane())
next(batches)
print("out", flush=True)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False, cwd=root, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "")


@pytest.mark.parametrize("device", ["cpu", None])
def test_without_a_device_batches_come_as_they_are(device: str | None) -> None:
    source = Counted(*tensors(3))
    before = threading.active_count()
    first = source.items[0]
    batches = prefetch_to_device(source, device)
    assert next(batches) is first
    assert source.asked == 1 and threading.active_count() == before
    batches.close()  # type: ignore[attr-defined]
    assert source.closed.is_set()


def test_other_devices_get_a_plain_move() -> None:
    ((moved, key),) = prefetch_to_device([(torch.ones(3), "a")], "meta")
    assert moved.device.type == "meta" and key == "a"


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(UsageError, match="depth is 0"):
        DevicePrefetcher([], FakeLane(), depth=0)
    with pytest.raises(UsageError, match="byte_budget is -1"):
        DevicePrefetcher([], FakeLane(), byte_budget=-1)
    with pytest.raises(UsageError, match="not a CUDA device"):
        CudaLane("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="sees no CUDA device"):
        prefetch_to_device([], "cuda")
