"""CUDA streams that are used again: torch's allocator keeps memory per stream, so a fresh one for
every epoch would take its memory anew every time.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_idle: dict[int, list[torch.cuda.Stream]] = {}
_lock = threading.Lock()


def take_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream that nobody else has until it is given back."""
    with _lock:
        idle = _idle.setdefault(device.index, [])
        return idle.pop() if idle else torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def give_back_stream(stream: torch.cuda.Stream) -> None:
    """The end of `take_stream`."""
    with _lock:
        _idle.setdefault(stream.device.index, []).append(stream)


@contextmanager
def own_stream(device: torch.device) -> Iterator[torch.cuda.Stream]:
    """A stream of one's own, current in this thread."""
    stream = take_stream(device)
    try:
        with torch.cuda.device(device), torch.cuda.stream(stream):
            yield stream
    finally:
        give_back_stream(stream)
