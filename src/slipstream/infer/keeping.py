"""The caller's process as it was: random numbers, threads, flags and modes."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import torch

from slipstream.rng import Rng
from slipstream.tf32 import restore_tf32, tf32_settings


@contextmanager
def everything_as_before(model: torch.nn.Module) -> Iterator[None]:
    """Put back behind a block what it may change: the states of all random numbers, the number of
    threads, torch's flags for precision and cuDNN, and which parts of the model are in training.
    """
    numbers = Rng()
    threads = torch.get_num_threads()
    flags = [(place, name, getattr(place, name)) for place, name in _flags()]
    tf32 = tf32_settings()
    try:
        with modes_as_before(model):
            yield
    finally:
        numbers.restore()
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        for place, name, value in flags:
            if getattr(place, name) != value:
                setattr(place, name, value)
        restore_tf32(tf32)


@contextmanager
def modes_as_before(model: torch.nn.Module) -> Iterator[None]:
    """Put back behind a block which parts of a model are in training."""
    modes = [(part, part.training) for part in model.modules()]
    try:
        yield
    finally:
        for part, training in modes:
            if part.training != training:
                part.train(training)  # which may do more than note it


@contextmanager
def without_fast_path() -> Iterator[None]:
    """Attention and encoder layers as they are written, not as one operator of torch."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _flags() -> list[tuple[Any, str]]:
    return [
        (torch.backends.cudnn, "benchmark"),
        (torch.backends.cudnn, "deterministic"),
        (torch.backends.mkldnn, "enabled"),
    ]


class TookTooLong(BaseException):
    """A limit has passed. It is not for those who catch what may go wrong in their own code."""


_AGAIN_S = 10.0


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End a block with `TookTooLong`. It is Python that is interrupted: a call into another
    language ends first. Only in the main thread, where no other alarm is set; elsewhere nothing is
    limited.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(
        signal.ITIMER_REAL
    ) != (0.0, 0.0):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"not done after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)  # somebody may catch all there is
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        with suppress(TypeError):  # a handler that was not set from Python
            signal.signal(signal.SIGALRM, before)
