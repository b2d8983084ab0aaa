"""The prefetcher on a real GPU: delayed kernels show that nothing is overwritten while in use."""

import itertools
import os
import signal
import subprocess
import sys
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from slipstream.errors import UsageError
from slipstream.loader.cuda_lane import CudaLane, Sent
from slipstream.loader.prefetch import DevicePrefetcher, prefetch_to_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda")
MIB = 1 << 20
SHORT = 400_000  # cycles: about 0.2 ms
DELAY = 2_000_000  # about 1 ms, long for the copies here
LONG = 4_000_000  # about 2 ms

Lanes = Callable[[torch.device], CudaLane]


class DelayedLane(CudaLane):
    """Every copy begins late, so a host buffer that is let go early is overwritten before it."""

    def send(self, batch: Any) -> tuple[Sent, list[object]]:
        torch.cuda._sleep(DELAY)
        return super().send(batch)


class EarlyReleaseLane(DelayedLane):
    """Broken: says that copies are done when they are not."""

    def finished(self, ticket: Any) -> bool:
        return True


class NoWaitLane(DelayedLane):
    """Broken: the consumer's stream does not wait for the copy."""

    def receive(self, sent: Sent) -> Any:
        for tensor in sent.recorded:
            tensor.record_stream(torch.cuda.current_stream())
        return sent.batch


class NoRecordLane(CudaLane):
    """Broken: the allocator does not hear of the consumer's stream."""

    def receive(self, sent: Sent) -> Any:
        torch.cuda.current_stream().wait_event(sent.ticket)
        return sent.batch


class InPlace:
    """A batch object that moves itself in place, as PyG's Data does."""

    def __init__(self, x: torch.Tensor, value: int) -> None:
        self.x = x
        self.value = value

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def to(self, device: torch.device, non_blocking: bool = False) -> "InPlace":
        self.x = self.x.to(device, non_blocking=non_blocking)
        return self


class PinnedRing:
    """Source on few page-locked buffers, each overwritten the moment its tensor is gone."""

    def __init__(self, batches: int, sizes: list[int], *, slots: int = 3, wrap: Any = dict) -> None:
        self.buffers = [
            torch.empty(max(sizes), dtype=torch.uint8).pin_memory() for _ in range(slots)
        ]
        self.free = deque(range(slots))
        self.left = deque(range(batches))
        self.sizes = itertools.cycle(sizes)
        self.wrap = wrap

    def __iter__(self) -> "PinnedRing":
        return self

    def __next__(self) -> Any:
        if not self.left:
            raise StopIteration
        deadline = time.monotonic() + 20
        while not self.free:
            assert time.monotonic() < deadline, "no slot became free"
            time.sleep(0.0001)
        number, value = self.free.popleft(), self.left.popleft() % 251
        tensor = self.buffers[number][: next(self.sizes)]
        tensor.numpy()[:] = value
        weakref.finalize(tensor, self.give_back, number)
        return self.wrap(x=tensor, value=value)

    def give_back(self, number: int) -> None:
        self.buffers[number].numpy()[:] = 255
        self.free.append(number)


def mixed_sizes() -> list[int]:
    return [int(size) for size in np.random.default_rng(0).integers(1, MIB, 97)]


def mismatches(
    source: Iterator[Any], lane: Lanes = DelayedLane, *, sleep: int = SHORT, **options: Any
) -> int:
    """Batches whose content is wrong when a delayed kernel reads it; each seventh is kept and
    read at the end again.
    """
    bad = torch.zeros((), dtype=torch.int64, device=CUDA)
    kept = []
    for number, batch in enumerate(DevicePrefetcher(source, lane(CUDA), **options)):
        torch.cuda._sleep(sleep)
        bad += (batch["x"] != batch["value"]).any()
        if number % 7 == 0:
            kept.append(batch)
        del batch
    for batch in kept:
        bad += (batch["x"] != batch["value"]).any()
    return int(bad.item())


@pytest.mark.parametrize("wrap", [dict, InPlace])
@pytest.mark.parametrize("depth", [1, 4])
def test_nothing_is_overwritten_while_in_use(depth: int, wrap: Any) -> None:
    assert mismatches(PinnedRing(300, mixed_sizes(), wrap=wrap), depth=depth) == 0


def test_nothing_is_overwritten_for_a_consumer_on_its_own_stream() -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        assert mismatches(PinnedRing(300, mixed_sizes())) == 0


def test_nothing_is_overwritten_with_one_slot_and_equal_sizes() -> None:
    ring = PinnedRing(200, [MIB], slots=1)
    assert mismatches(ring, CudaLane, sleep=LONG // 4) == 0


@pytest.mark.parametrize("broken", [EarlyReleaseLane, NoWaitLane, NoRecordLane])
def test_the_tests_above_catch_a_broken_lane(broken: Lanes) -> None:
    ring = PinnedRing(60, [MIB], slots=4)
    sleep = LONG if broken is NoRecordLane else 1
    assert mismatches(ring, broken, sleep=sleep) > 0


def test_batches_handed_on_to_a_second_stream() -> None:
    side = torch.cuda.Stream()
    bad = torch.zeros((), dtype=torch.int64, device=CUDA)
    torch.cuda.synchronize()
    for batch in DevicePrefetcher(PinnedRing(200, [MIB]), DelayedLane(CUDA)):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(SHORT)
            bad += (batch["x"] != batch["value"]).any()
        batch["x"].record_stream(side)
    side.synchronize()
    assert bad.item() == 0


@pytest.mark.parametrize("pinned", [True, False])
def test_a_source_may_write_into_the_same_buffer_for_every_batch(pinned: bool) -> None:
    def same_buffer() -> Iterator[dict[str, Any]]:
        buffer = torch.empty(MIB // 2, dtype=torch.uint8, pin_memory=pinned)
        for number in range(100):
            buffer.fill_(number)
            yield {"x": buffer, "value": number}

    assert mismatches(same_buffer()) == 0


def test_tensors_the_source_makes_on_the_device_are_waited_for() -> None:
    def on_device() -> Iterator[dict[str, Any]]:
        for number in range(50):
            torch.cuda._sleep(SHORT)
            yield {"x": torch.full((MIB,), number, dtype=torch.uint8, device=CUDA), "value": number}

    assert mismatches(on_device(), CudaLane, sleep=LONG // 4) == 0


def one(batch: Any) -> Any:
    """The batch after its way through the prefetcher."""
    (out,) = prefetch_to_device([batch], "cuda")
    return out


def test_every_kind_of_tensor_arrives() -> None:
    image = torch.rand(2, 3, 8, 8)
    host = {
        "float": image,
        "pinned": image.pin_memory(),
        "channels_last": image.to(memory_format=torch.channels_last),
        "pinned_channels_last": image.to(memory_format=torch.channels_last).pin_memory(),
        "gaps": image[:, ::2, 1:, ::3],
        "pinned_gaps": image.pin_memory()[:, ::2, 1:, ::3],
        "expanded": torch.rand(1, 3).expand(4, 3),
        "transposed": torch.rand(3, 4).t(),
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 3),
        "bool": torch.rand(5) > 0.5,
        "half": torch.rand(5).bfloat16(),
        "complex": torch.rand(5, dtype=torch.complex64),
        "conjugate": torch.rand(5, dtype=torch.complex64).conj(),
        "sparse": torch.eye(3).to_sparse(),
    }
    out = one(host)
    for name, tensor in host.items():
        got = out[name]
        assert got.device == torch.device("cuda", torch.cuda.current_device()), name
        assert got.dtype == tensor.dtype and got.shape == tensor.shape, name
        if name != "sparse":
            assert got.stride() == tensor.clone().stride(), name
        assert torch.equal(got.cpu().to_dense(), tensor.to_dense()), name
    assert out["channels_last"].is_contiguous(memory_format=torch.channels_last)


def test_identity_grad_and_other_leaves() -> None:
    shared = torch.ones(3)
    there = torch.ones(2, device=CUDA)
    text = "text"
    out = one([shared, (shared, text), torch.ones(2, requires_grad=True), there, None])
    assert out[0] is out[1][0] and out[1][1] is text and out[4] is None
    assert out[2].requires_grad and out[2].is_leaf and out[2].is_cuda
    assert out[3] is there


def test_objects_that_move_themselves() -> None:
    class Closed:
        """Hides its tensor from everybody."""

        def __init__(self, x: torch.Tensor) -> None:
            self.x = lambda: x

        def pin_memory(self) -> "Closed":
            return type(self)(self.x().pin_memory())

        def to(self, device: torch.device) -> "Closed":
            return Closed(self.x().to(device))

    class Told(Closed):
        told = 0

        def to(self, device: torch.device) -> "Told":
            return Told(self.x().to(device))

        def record_stream(self, stream: torch.cuda.Stream) -> None:
            Told.told += 1
            self.x().record_stream(stream)

    packed = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    out = one([packed, Closed(torch.ones(3)), Told(torch.ones(3)), InPlace(torch.ones(3), 1)])
    assert type(out[0]) is PackedSequence and out[0].data.is_cuda
    assert out[0].batch_sizes.device.type == "cpu"
    assert torch.equal(out[0].data.cpu(), packed.data)
    assert all(x.is_cuda and x.sum().item() == 3 for x in (out[1].x(), out[2].x(), out[3].x))
    assert Told.told == 1


def peak_bytes(byte_budget: int, count: int, sleep: int) -> tuple[int, int]:
    """Peak of reserved memory, and its growth in the last half, with a consumer that runs ahead."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = half = torch.cuda.memory_reserved()
    source = itertools.repeat(torch.ones(MIB, pin_memory=True), count)
    batches = prefetch_to_device(source, "cuda", byte_budget=byte_budget)
    for number, batch in enumerate(batches):
        torch.cuda._sleep(sleep)
        batch.sum()
        del batch
        if number == count // 2:
            half = torch.cuda.memory_reserved()
    grown = torch.cuda.memory_reserved() - half
    torch.cuda.synchronize()
    return torch.cuda.max_memory_reserved() - before, grown


def test_memory_does_not_grow() -> None:
    peak, grown = peak_bytes(64 * MIB, 2_000, LONG // 4)
    assert peak <= 160 * MIB and grown <= 40 * MIB, (peak / MIB, grown / MIB)


def test_the_byte_budget_holds_back_a_consumer_that_runs_ahead() -> None:
    held, _ = peak_bytes(64 * MIB, 150, LONG)
    free, _ = peak_bytes(1 << 40, 150, LONG)
    assert held <= 160 * MIB < 240 * MIB < free, (held / MIB, free / MIB)


def test_an_epoch_uses_the_memory_of_the_one_before() -> None:
    host = torch.ones(2 * MIB, pin_memory=True)
    streams, reserved = set(), []
    for _ in range(40):
        lane = CudaLane(CUDA)
        streams.add(lane.stream.cuda_stream)
        assert len(list(DevicePrefetcher([host] * 3, lane))) == 3
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    assert len(streams) == 1
    assert reserved[-1] <= reserved[4]
    first, second = CudaLane(CUDA), CudaLane(CUDA)
    assert first.stream != second.stream


def elapsed_s(work: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def test_copies_and_compute_overlap() -> None:
    host = torch.ones(64 * MIB, pin_memory=True)  # 256 MiB: some milliseconds
    target = torch.empty(host.shape, device=CUDA)
    count = 12

    def copy_all() -> None:
        for _ in range(count):
            target.copy_(host, non_blocking=True)

    copy_all()
    copy_s = min(elapsed_s(copy_all) for _ in range(3))
    calibration = 50_000_000
    sleep_s = min(elapsed_s(lambda: torch.cuda._sleep(calibration)) for _ in range(3))
    cycles = int(copy_s / count * calibration / sleep_s)

    def compute_all() -> None:
        for _ in range(count):
            torch.cuda._sleep(cycles)

    def train() -> None:
        for _ in prefetch_to_device(itertools.repeat(host, count), "cuda"):
            torch.cuda._sleep(cycles)

    compute_s = min(elapsed_s(compute_all) for _ in range(3))
    train()
    both_s = min(elapsed_s(train) for _ in range(3))
    assert both_s < 0.8 * (copy_s + compute_s), (both_s, copy_s, compute_s)


def test_statistics() -> None:
    batches = prefetch_to_device([torch.ones(MIB) for _ in range(5)], "cuda")
    assert isinstance(batches, DevicePrefetcher)
    assert sum(batch.sum().item() for batch in batches) == 5 * MIB
    stats = batches.stats
    assert (stats.batches, stats.copied_bytes) == (5, 20 * MIB)
    assert stats.pin_s > 0 and 0 <= stats.mean_depth <= 2


def test_a_forked_child_gets_an_error() -> None:
    batches = prefetch_to_device(itertools.repeat(torch.ones(4)), "cuda")
    next(batches)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(8)
        try:
            next(batches)
        except UsageError:
            os._exit(0)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert next(batches).is_cuda
    batches.close()  # type: ignore[attr-defined]


def test_the_interpreter_ends_though_nobody_closed() -> None:
    script = """
import itertools, torch
from slipstream.loader.prefetch import prefetch_to_device
batches = prefetch_to_device(itertools.repeat(torch.ones(1 << 20)), "cuda")
print(int(next(batches).sum()), flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, f"{MIB}\n"), done.stderr
