"""Tensors of pictures whose values are made when somebody looks at them, a batch at a time.

What ToTensor makes of a late picture mostly goes from the dataset straight into a batch. Such a
tensor notes what it is to be. The batch's collate has all of them decoded in one call, on several
threads and into the batch's own memory; any other use of one finds its values in their place, and
from then on the object is a plain tensor.
"""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from slipstream import _native
from slipstream.run.pictures.source import Pixels, Source
from slipstream.run.pictures.window import Window

_set_class = vars(object)["__class__"].__set__
_NOTHING = torch.zeros((), device="cpu")


class _Permission(threading.local):
    # What was collated meanwhile: a tensor, its batch, its place there. None: not given.
    collated: list[tuple[Any, torch.Tensor, int]] | None = None


_permission = _Permission()


class LateTensor(torch.Tensor):
    """float32[3, height, width] of a window of a file. Made by `late_tensor`."""

    _source: Source
    _window: Window
    _table: Any

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _settle_all((args, kwargs))
        return func(*args, **(kwargs or {}))

    __class__ = property(lambda self: torch.Tensor)


@contextmanager
def postponed() -> Iterator[None]:
    """Meanwhile tensors may be late, in this thread: who asks has a batch made of them.

    One that is still there in the end is the dataset's to keep, and gets its values.
    """
    before = _permission.collated
    collated = _permission.collated = []
    try:
        yield
    finally:
        _permission.collated = before
    for reference, batch, place in collated:
        if is_late(kept := reference()):
            settle(kept, batch[place].clone())


def is_postponed() -> bool:
    """Whether that is so."""
    return _permission.collated is not None


def note_collated(late: Any, batch: torch.Tensor, place: int) -> None:
    """The values of one lie there now."""
    if _permission.collated is not None:
        _permission.collated.append((weakref.ref(late), batch, place))


def late_tensor(source: Source, window: Window, table: Any) -> torch.Tensor:
    """The entries in `table`, float32[3, 256], of a window's pixels."""
    width, height = window.size
    with torch._C.DisableTorchFunctionSubclass():
        shape = _NOTHING.expand(3, height, width)
        late: LateTensor = torch.Tensor._make_subclass(LateTensor, shape)
    own = vars(late)
    own["_source"], own["_window"], own["_table"] = source, window, table
    return late


def is_late(value: Any) -> bool:
    """Whether its values are still to be made."""
    return type(value) is LateTensor


def notes_of(late: Any) -> tuple[Source, Window, Any]:
    """What one is to be."""
    own = vars(late)
    return own["_source"], own["_window"], own["_table"]


def values_of(pixels: Pixels, table: Any) -> torch.Tensor:
    """Of uint8[height, width, 3]: a plain tensor."""
    out = torch.empty((3, *pixels.shape[:2]), dtype=torch.float32, device="cpu")
    _native.convert(np.asarray(pixels)[None], out.unsqueeze(0).numpy(), table, 1)
    return out


def settle(late: Any, values: torch.Tensor | None = None) -> None:
    """From now on it is a plain tensor."""
    source, window, table = notes_of(late)
    with torch._C.DisableTorchFunctionSubclass():
        late.data = values_of(source.pixels(window), table) if values is None else values
    vars(late).clear()
    _set_class(late, torch.Tensor)


def _settle_all(values: Any) -> None:
    """Those that lie in arguments of a call."""
    if is_late(values):
        settle(values)
    elif isinstance(values, (tuple, list)):
        for value in values:
            _settle_all(value)
    elif isinstance(values, dict):
        for value in values.values():
            _settle_all(value)
