"""Little memory, few descriptors, full pipes, slow samples: slower maybe, but right and no hang."""

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream import Loader, SlipstreamError
from slipstream.errors import StorageError
from slipstream.loader import memory, worker
from tests.faults.conftest import engine_loader
from tests.faults.datasets import Numbers, is_in_order, run_forked


def _no_memory(size: int) -> int:
    raise StorageError(f"Cannot take {size:,} bytes of shared memory for a batch: none is left.")


@pytest.mark.parametrize("persistent", [False, True])
def test_without_memory_for_slots_batches_come_torchs_way(
    persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "make_shared", _no_memory)
    loader = Loader(
        Numbers(64, width=5000), 8, num_workers=2, persistent_workers=persistent
    )  # workers are forked and inherit the patch
    for _ in range(2):
        assert is_in_order(list(loader), 64)


def test_memory_that_ends_after_some_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = worker.make_shared, []

    def one_only(size: int) -> int:
        calls.append(size)
        return real(size) if len(calls) == 1 else _no_memory(size)

    monkeypatch.setattr(worker, "make_shared", one_only)
    assert is_in_order(list(Loader(Numbers(64, width=5000), 8, num_workers=2)), 64)


@pytest.mark.parametrize("failing", ["memfd_create", "posix_fallocate"])
def test_the_kernel_refuses_shared_memory(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(memory.os, failing, refuse)
    with pytest.raises(StorageError, match="No space left on device"):
        memory.make_shared(4096)
    assert is_in_order(list(Loader(Numbers(64, width=5000), 8, num_workers=2)), 64)


def test_the_kernel_refuses_to_map_in_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, size: int) -> Any:
        raise StorageError("Cannot map shared memory: Cannot allocate memory.")

    monkeypatch.setattr(worker, "map_shared", refuse)
    assert is_in_order(list(Loader(Numbers(64, width=5000), 8, num_workers=2)), 64)


def test_slots_of_earlier_workers_that_cannot_be_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, size: int) -> Any:
        raise StorageError("Cannot map shared memory: Cannot allocate memory.")

    loader = Loader(Numbers(64, width=5000), 8, num_workers=2)
    assert is_in_order(list(loader), 64)
    monkeypatch.setattr(worker, "map_shared", refuse)
    assert is_in_order(list(loader), 64)


def with_limit(limit: int, value: int, body: Callable[[], object]) -> int:
    """Exit code of a child under a resource limit."""

    def limited() -> object:
        resource.setrlimit(limit, (value, value))
        return body()

    return run_forked(limited)


def test_no_memory_may_be_locked(packed: Path) -> None:
    def body() -> None:
        assert is_in_order(list(Loader(Numbers(64, width=5000), 8, num_workers=2)), 64)
        assert len(list(engine_loader(packed))) == 6

    assert with_limit(resource.RLIMIT_MEMLOCK, 0, body) == 0


@pytest.mark.parametrize("free", [*range(0, 24, 2), 40])
def test_few_descriptors(free: int) -> None:
    """Right batches or a clear error, at any number of descriptors that are left."""

    def body() -> None:
        try:
            batches = list(Loader(Numbers(64, width=5000), 8, num_workers=2))
        except (OSError, SlipstreamError, RuntimeError) as error:
            assert "Too many open files" in str(error) or "descriptors" in str(error), repr(error)
            return
        assert is_in_order(batches, 64)

    used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert with_limit(resource.RLIMIT_NOFILE, used + free, body) == 0


def test_few_descriptors_in_the_engine(packed: Path) -> None:
    def body() -> None:
        try:
            count = len(list(engine_loader(packed)))
        except (OSError, SlipstreamError) as error:
            assert "Too many open files" in str(error), repr(error)
            return
        assert count == 6

    used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for free in (0, 1, 2, 8):
        assert with_limit(resource.RLIMIT_NOFILE, used + free, body) == 0


def _texts(samples: list[torch.Tensor]) -> list[str]:
    return [f"{int(sample[0]):07d}" * 900_000 for sample in samples]


@pytest.mark.parametrize("in_order", [True, False])
def test_batches_larger_than_any_pipe(in_order: bool) -> None:
    """50 MB of text each, while the loop looks elsewhere."""
    loader = Loader(Numbers(48), 8, num_workers=2, collate_fn=_texts, in_order=in_order)
    firsts = []
    for batch in loader:
        time.sleep(0.02)
        firsts.append(int(batch[0][:7]))
        assert [len(text) for text in batch] == [6_300_000] * 8
    assert sorted(firsts) == list(range(0, 48, 8))


class _LongTasks:
    """A batch sampler whose numbers take megabytes themselves."""

    def __iter__(self) -> Any:
        for batch in range(10):
            yield [f"{batch}:{number:060d}" for number in range(60_000)]

    def __len__(self) -> int:
        return 10


class _ByText(Numbers):
    def __getitems__(self, indices: list[str]) -> list[str]:
        return indices

    def __getitem__(self, index: Any) -> Any:
        return index


def _itself(samples: Any) -> Any:
    return samples


def test_long_tasks_and_long_answers_at_once() -> None:
    """Both ends send more than the socket holds: neither waits for the other to read first."""
    loader = Loader(
        _ByText(1), batch_sampler=_LongTasks(), num_workers=2, collate_fn=_itself, prefetch_factor=4
    )  # fmt: skip
    for number, batch in enumerate(loader):
        assert len(batch) == 60_000
        assert batch[0].startswith(f"{number}:")


class _OneIsSlow(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.6 if index == 9 else 0.02)
        return super().__getitem__(index)


@pytest.mark.parametrize("in_order", [True, False])
def test_a_sample_thirty_times_slower_than_the_others(in_order: bool) -> None:
    loader = Loader(_OneIsSlow(40), 2, num_workers=2, in_order=in_order)
    firsts = [int(batch[0, 0]) for batch in loader]
    assert sorted(firsts) == list(range(0, 40, 2))
    assert (firsts == sorted(firsts)) == in_order
    if not in_order:
        assert firsts.index(8) >= 6, "the others went on meanwhile"
