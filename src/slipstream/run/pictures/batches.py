"""Batches of late tensors: decoded by all threads at once, into the memory of the batch."""

import itertools
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from slipstream import _native
from slipstream.cpu import usable_cores
from slipstream.loader.collating import SlotCollate
from slipstream.loader.memory import ALIGNMENT, Bytes, tensor_at
from slipstream.run.pictures.late_tensor import is_late, note_collated, notes_of, settle
from slipstream.run.pictures.source import PASS_ORDER, Source
from slipstream.run.pictures.window import Window
from slipstream.store.format import align


class LateCollate(SlotCollate):
    """torch's own collate; tensors that are late are made where the batch lies."""

    def __init__(self, slot: Bytes | None, threads: int | None = None) -> None:
        super().__init__(slot)
        self._threads = threads or _threads_here()

    def _stack(self, tensors: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> Any:
        late = [*map(is_late, tensors)]
        notes = [notes_of(tensor) for tensor in tensors] if all(late) else []
        if not notes or any(kind_of(other) != kind_of(notes[0]) for other in notes):
            for tensor in itertools.compress(tensors, late):
                settle(tensor)
            return super()._stack(tensors, collate_fn_map=collate_fn_map)
        width, height = notes[0][1].size
        out = self._room((len(tensors), 3, height, width))
        _fill(out, notes, self._threads)
        for place, tensor in enumerate(tensors):
            note_collated(tensor, out, place)
        return out

    def _room(self, shape: tuple[int, ...]) -> torch.Tensor:
        nbytes = 4 * int(np.prod(shape))
        if self._slot is None or self._used + nbytes > self._slot.nbytes:
            return torch.empty(shape, dtype=torch.float32, device="cpu")
        out = tensor_at(self._slot, self._used, torch.float32, shape)
        self._used += align(nbytes, ALIGNMENT)
        return out


def _threads_here() -> int:
    """The loop waits, and has torch's; workers divide what cores there are."""
    info = get_worker_info()
    return torch.get_num_threads() if info is None else _threads_of_worker(info.num_workers)


@cache
def _threads_of_worker(workers: int) -> int:
    cores = usable_cores() // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    return max(1, cores // workers)


def kind_of(notes: tuple[Source, Window, Any]) -> tuple[Any, ...]:
    """What all of a batch have in common."""
    return notes[1].size, id(notes[2])


def _fill(out: torch.Tensor, notes: list[Any], threads: int) -> None:
    """With the entries of the pixels of every window in the table, which is the same for all."""
    count, _, height, width = out.shape
    pixels = np.empty((count, height, width, 3), dtype=np.uint8)
    decode(pixels, notes, threads)
    _native.convert(pixels, out.numpy(), notes[0][2], threads)


def decode(pixels: Any, notes: list[Any], threads: int) -> None:
    """Every window, into uint8[count, height, width, 3]."""
    status = _decode_fresh(pixels, notes, threads)
    for place, (source, window, _) in enumerate(notes):
        if status[place] != _native.STATUS_OK:
            pixels[place] = source.pixels(window)


def _decode_fresh(pixels: Any, notes: list[Any], threads: int) -> Any:
    """In one call, as far as one filter goes; a status for each, not good for those left."""
    windows = [window for _, window, _ in notes]
    filter = next((window.filter for window in windows if window.full is not None), 0)
    fresh = [
        place
        for place, (source, window, _) in enumerate(notes)
        if window.full is not None and window.filter == filter and source.use_first()
    ]
    status = np.full(len(notes), -1, dtype=np.int32)
    if not fresh:
        return status
    files = [notes[place][0].data for place in fresh]
    count = len(fresh)
    target = pixels if count == len(notes) else np.empty((count, *pixels.shape[1:]), np.uint8)
    status[fresh] = _native.decode_batch(
        files, np.arange(count, dtype=np.uint32), np.zeros(count, dtype=np.uint64),
        np.fromiter(map(len, files), np.uint64, count), np.zeros(count, dtype=np.uint8), None,
        np.array([windows[place][:4] for place in fresh], dtype=np.int32),
        np.fromiter((windows[place].flips for place in fresh), np.uint8, count),
        np.array(
            [(*windows[place].full, windows[place].left, windows[place].top) for place in fresh],
            dtype=np.int32,
        ),
        target, filter, PASS_ORDER, threads,
    )  # fmt: skip
    if target is not pixels:
        pixels[fresh] = target
    return status
