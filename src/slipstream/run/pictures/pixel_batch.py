"""Batches of workers that leave them as bytes: see late_batch.py."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from slipstream.loader.memory import ALIGNMENT, tensor_at
from slipstream.run.pictures.batches import LateCollate, decode, kind_of
from slipstream.run.pictures.late_batch import late_batch
from slipstream.run.pictures.late_tensor import is_late, note_collated, notes_of, values_of
from slipstream.store.format import align

_LEAST_BYTES = 1 << 16  # of a batch: less is not worth a look


class PixelBatch:
    """On its way from a worker; a late batch to whoever unpickles it. Not a tensor: nobody in the
    worker has a use for it.
    """

    def __init__(self, pixels: torch.Tensor, table: torch.Tensor) -> None:
        self._pixels, self._table = pixels, table

    def __getitem__(self, place: int) -> torch.Tensor:
        """The values of one picture."""
        return values_of(self._pixels[place].numpy(), self._table.numpy())

    def __reduce__(self) -> Any:
        return late_batch, (self._pixels, self._table)


def stack_bytes(collate: LateCollate, tensors: Sequence[Any]) -> PixelBatch | None:
    """The batch of these, decoded where `collate` has its tensors lie; None unless all are late and
    of one kind.
    """
    if not all(map(is_late, tensors)):
        return None
    notes = [notes_of(tensor) for tensor in tensors]
    if any(kind_of(other) != kind_of(notes[0]) for other in notes):
        return None
    width, height = notes[0][1].size
    shape = (len(tensors), height, width, 3)
    nbytes = int(np.prod(shape))
    if nbytes < _LEAST_BYTES:
        return None
    pixels = _room(collate, shape, nbytes)
    decode(pixels.numpy(), notes, collate._threads)
    batch = PixelBatch(pixels, torch.from_numpy(notes[0][2]))
    rows: Any = batch  # all that is asked of it
    for place, tensor in enumerate(tensors):
        note_collated(tensor, rows, place)
    return batch


def _room(collate: LateCollate, shape: tuple[int, ...], nbytes: int) -> torch.Tensor:
    slot = collate._slot
    if slot is None or collate._used + nbytes > slot.nbytes:
        return torch.empty(shape, dtype=torch.uint8, device="cpu")
    out = tensor_at(slot, collate._used, torch.uint8, shape)
    collate._used += align(nbytes, ALIGNMENT)
    return out
