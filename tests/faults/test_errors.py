"""Errors of the user's own code arrive, with their text, and leave the loader in order."""

import pickle
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch._utils import ExceptionWrapper

from slipstream import Loader, SlipstreamError
from slipstream.loader import worker
from tests.faults.conftest import MakeLoader
from tests.faults.datasets import (
    Act,
    ActsAt,
    HasMessage,
    Numbers,
    is_in_order,
    raise_has_message,
    raise_key_error,
    raise_local,
    raise_refusing,
    raise_stop_iteration,
    raise_two_arguments,
    raise_value_error,
)


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (raise_value_error, ValueError, "sample is bad"),
        (raise_key_error, KeyError, "sample is bad"),
        (raise_has_message, HasMessage, "sample is bad"),
        (raise_two_arguments, RuntimeError, "TwoArguments"),
        (raise_refusing, RuntimeError, "RefusesText"),
        (raise_local, RuntimeError, "LocalError: sample is bad"),
        (raise_stop_iteration, RuntimeError, "StopIteration"),
    ],
)
def test_an_error_of_the_dataset_arrives_and_the_rest_goes_on(
    act: Act, kind: type[Exception], words: str
) -> None:
    batches = iter(Loader(ActsAt(64, at=20, act=act), 8, num_workers=2))
    came = [next(batches), next(batches)]
    with pytest.raises(kind, match=words) as caught:
        next(batches)
    assert "DataLoader worker process 0" in str(caught.value)
    assert "Traceback" in str(caught.value)
    came += batches
    assert [int(batch[0, 0]) for batch in came] == [0, 8, 24, 32, 40, 48, 56]


def test_a_caught_error_does_not_keep_the_workers() -> None:
    """No cycle through the traceback: the workers end when the loop does, not some day."""
    iterator = iter(Loader(ActsAt(64, at=20, act=raise_value_error), 8, num_workers=2))
    processes: list[Any] = []
    try:
        for _ in iterator:
            processes = list(iterator._workers)
    except ValueError:
        pass
    del iterator
    assert processes
    assert not any(process.is_alive() for process in processes)


def test_a_caught_error_does_not_keep_the_threads(engine: MakeLoader) -> None:
    try:
        for _ in engine(sampler=_sampler_that_fails(after=8)):
            pass
    except ValueError:
        pass
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("slipstream-batches")]


def _fail_at_eight(samples: list[torch.Tensor]) -> Any:
    if int(samples[0][0]) == 8:
        raise ValueError("cannot collate")
    return torch.stack(samples)


@pytest.mark.parametrize("persistent", [False, True])
def test_an_error_of_the_collate_function(persistent: bool) -> None:
    loader = Loader(
        Numbers(64), 8, num_workers=2, collate_fn=_fail_at_eight, persistent_workers=persistent
    )
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot collate"):
            list(loader)


class _Ragged(Numbers):
    """Every third batch of eight cannot be stacked."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(20_000 + (index // 8 % 3 == 2 and index % 2))


class _NeverTorchsWay:
    """In the worker, lets failures through and refuses batches."""

    @staticmethod
    def dumps(value: Any) -> Any:
        assert isinstance(value, ExceptionWrapper), "this batch has no slot"
        return pickle.dumps(value)


def test_failed_batches_do_not_use_up_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that a failed batch was being stacked into is used again."""
    monkeypatch.setattr(worker, "ForkingPickler", _NeverTorchsWay)
    batches = iter(Loader(_Ragged(8 * 90), 8, num_workers=1))
    good = bad = 0
    while True:
        try:
            next(batches)
            good += 1
        except StopIteration:
            break
        except RuntimeError as error:
            assert "stack expects each tensor to be equal size" in str(error)
            bad += 1
    assert (good, bad) == (60, 30)


class _Strict(Mapping[str, Any]):
    """Cannot be made of a dict, so torch collates all its fields, and then all once more."""

    def __init__(self, *, index: int) -> None:
        self._fields = {name: torch.full((9000,), index) for name in "abcd"}

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class _StrictSamples(Numbers):
    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((3000,), index), "more": _Strict(index=index)}


def test_fields_that_were_stacked_twice_fit_into_the_slot() -> None:
    for number, batch in enumerate(Loader(_StrictSamples(64), 8, num_workers=2)):
        want = torch.arange(8 * number, 8 * number + 8)[:, None]
        assert all(bool((part == want).all()) for part in (batch["x"], *batch["more"].values()))


def _fail_to_start(number: int) -> None:
    raise ValueError(f"worker {number} does not want to")


@pytest.mark.parametrize("persistent", [False, True])
def test_an_error_of_the_worker_init_function(persistent: bool) -> None:
    loader = Loader(
        Numbers(64), 8, num_workers=2, worker_init_fn=_fail_to_start, persistent_workers=persistent
    )
    with pytest.raises(ValueError, match="worker 0 does not want to"):
        next(iter(loader))


class _sampler_that_fails:
    def __init__(self, after: int) -> None:
        self._after = after

    def __iter__(self) -> Iterator[int]:
        yield from range(self._after)
        raise ValueError("no more numbers")

    def __len__(self) -> int:
        return self._after


def test_an_error_of_the_sampler_comes_after_the_batches_before_it() -> None:
    loader = Loader(Numbers(64), 8, num_workers=2, sampler=_sampler_that_fails(after=30))
    came = []
    with pytest.raises(ValueError, match="no more numbers"):
        for batch in loader:
            came.append(batch)
    assert is_in_order(came, 24)


def test_an_error_of_the_sampler_in_the_engine(engine: MakeLoader) -> None:
    came = []
    with pytest.raises(ValueError, match="no more numbers"):
        for batch in engine(sampler=_sampler_that_fails(after=10)):
            came.append(batch)
    assert len(came) == 2


def test_a_number_that_is_not_there(engine: MakeLoader) -> None:
    for loader in (
        Loader(list(range(8)), 4, num_workers=1, sampler=[0, 1, 2, 99]),  # type: ignore[arg-type]
        engine(sampler=[0, 1, 2, 99]),
    ):
        with pytest.raises((IndexError, SlipstreamError)):
            list(loader)


class _Unpicklable:
    def __init__(self, number: int) -> None:
        self.number = number
        self.function = (lambda: number) if number == 8 else None


def _wrap_up(samples: list[torch.Tensor]) -> Any:
    return torch.stack(samples), _Unpicklable(int(samples[0][0]))


def test_a_batch_that_cannot_be_pickled() -> None:
    batches = iter(Loader(Numbers(64), 8, num_workers=2, collate_fn=_wrap_up))
    next(batches)
    with pytest.raises(Exception, match=r"(?i)pickle") as caught:
        next(batches)
    assert "DataLoader worker process 1" in str(caught.value)
    rest = [(pixels, other.number) for pixels, other in batches]
    assert [number for _, number in rest] == [16, 24, 32, 40, 48, 56]
    assert all(int(pixels[0, 0]) == number for pixels, number in rest)


class _OnlyOneWay:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise OSError("cannot be rebuilt here")


def _one_way_at_eight(samples: list[torch.Tensor]) -> Any:
    return torch.stack(samples), _OnlyOneWay() if int(samples[0][0]) == 8 else None


@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_that_cannot_be_unpickled(workers: int) -> None:
    """It fails alone: what came with it is not lost, so nobody waits for it for ever."""
    batches = iter(Loader(Numbers(64), 8, num_workers=workers, collate_fn=_one_way_at_eight))
    assert int(next(batches)[0][0, 0]) == 0
    with pytest.raises(OSError, match="cannot be rebuilt here"):
        next(batches)
    assert [int(pixels[0, 0]) for pixels, _ in batches] == [16, 24, 32, 40, 48, 56]


class _WithLock(Numbers):
    def __init__(self) -> None:
        super().__init__(64)
        self.lock = threading.Lock()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_dataset_that_cannot_be_pickled(method: str) -> None:
    loader = Loader(_WithLock(), 8, num_workers=2, multiprocessing_context=method)
    with (
        pytest.raises(TypeError, match=r"cannot pickle .*lock"),
        pytest.warns(match="pickle error"),
    ):
        next(iter(loader))


def test_an_error_of_the_loop_itself(engine: MakeLoader) -> None:
    for loader in (Loader(Numbers(640), 8, num_workers=2), engine()):
        with pytest.raises(ZeroDivisionError):
            for _ in loader:
                1 / 0  # noqa: B018
