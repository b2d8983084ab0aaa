"""ToTensor and Normalize of a torchvision pipeline in one pass over the pixels, bit for bit.

Only ToTensor: what PILToTensor and ToImage make has its channels next to each other in memory,
and so has what comes of them, which torch's own operations do as fast.
"""

import functools
import sys
from typing import Any

import numpy as np
import torch
from PIL import Image

from slipstream.augment.lowering import lower
from slipstream.augment.rules import qualified_name
from slipstream.patches import Patches
from slipstream.run.pictures.late_tensor import is_postponed, late_tensor, values_of
from slipstream.run.pictures.lazy import window_of

_COMPOSES = {
    "torchvision.transforms.transforms": "__call__",
    "torchvision.transforms.v2._container": "forward",
}
_TO_TENSOR = (
    "torchvision.transforms.transforms.ToTensor",
    "torchvision.transforms.v2._deprecated.ToTensor",
)
_NORMALIZE = (
    "torchvision.transforms.transforms.Normalize",
    "torchvision.transforms.v2._misc.Normalize",
)
_MOST_TABLES = 64
_tables: dict[tuple[Any, ...], Any] = {}
_patches = Patches()
_seen: set[str] = set()


def look() -> None:
    """Replace what runs a pipeline, once torchvision is imported; cheap when called often."""
    for module_name, method in _COMPOSES.items():
        if module_name in sys.modules and module_name not in _seen:
            kind = getattr(sys.modules[module_name], "Compose", None)
            if kind is not None:  # or it is being imported
                _seen.add(module_name)
                _patches.replace(kind, method, functools.partial(_wrap, kind))


def undo() -> None:
    """Put torchvision's back."""
    _patches.undo()
    _seen.clear()


def _wrap(kind: Any, original: Any) -> Any:
    def run(compose: Any, *inputs: Any, **kwargs: Any) -> Any:
        place = None
        if type(compose) is kind and len(inputs) == 1 and not kwargs:
            place = _place_of_tensor(compose.transforms)
        if place is None:
            return original(compose, *inputs, **kwargs)
        transforms, value = compose.transforms, inputs[0]
        for transform in transforms[:place]:
            value = transform(value)
        tensor, done = _tensor(value, transforms[place : place + 2], len(transforms) - place)
        value = value if tensor is None else tensor
        for transform in transforms[place + done :]:
            value = transform(value)
        return value

    return run


def _place_of_tensor(transforms: Any) -> int | None:
    if type(transforms) not in (list, tuple):
        return None
    for place, transform in enumerate(transforms):
        if type(transform).__name__ == "ToTensor" and qualified_name(transform) in _TO_TENSOR:
            return place
    return None


def _tensor(picture: Any, transforms: Any, left: int) -> tuple[torch.Tensor | None, int]:
    """What the first of the transforms makes of a picture, or the first two, and how many that
    were; none where it is not certain. `left` are to come, these included.
    """
    try:
        if not isinstance(picture, Image.Image) or picture.mode != "RGB" or _has_hooks(transforms):
            return None, 0
        done = 1 + (len(transforms) > 1 and qualified_name(transforms[1]) in _NORMALIZE)
        table = _table_of(transforms[:done])
        if table is None:
            return None, 0
        if done == left and is_postponed() and (noted := window_of(picture)) is not None:
            return late_tensor(*noted, table), done
    except Exception:
        return None, 0
    pixels = np.asarray(picture)  # raises what the transform would
    try:
        return values_of(pixels, table), done
    except Exception:
        return None, 0


def _table_of(transforms: Any) -> Any | None:
    """The value of each byte in each channel, float32[3, 256]. Raises for what is not known."""
    key: list[Any] = [torch.get_default_dtype(), *map(type, transforms)]
    for normalize in transforms[1:]:
        for values in (normalize.mean, normalize.std):
            if type(values) not in (list, tuple):
                raise TypeError("values that may change")
            key.append(tuple(values))
    name = tuple(key)
    if name not in _tables:
        if len(_tables) >= _MOST_TABLES:
            _tables.clear()
        _tables[name] = _make_table(transforms)
    return _tables[name]


def _make_table(transforms: Any) -> Any | None:
    lowered = lower(list(transforms), exact=True)
    finish = lowered.finish
    is_plain = finish.planar and finish.dtype == torch.float32 and not finish.channels_last
    if lowered.rest or lowered.stages or lowered.geometry.steps or finish.image or not is_plain:
        return None
    table = finish.table()
    return None if table is None else table.numpy()


def _has_hooks(transforms: Any) -> bool:
    if torch.nn.modules.module._has_any_global_hook():  # type: ignore[no-untyped-call]
        return True
    return any(
        getattr(transform, hooks, None)
        for transform in transforms
        for hooks in ("_forward_hooks", "_forward_pre_hooks")
    )
