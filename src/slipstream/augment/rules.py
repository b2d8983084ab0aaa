"""What the engine knows of torchvision's transforms: one rule per class, by qualified name.

torchvision is never imported. A rule reads a transform's attributes and adds what it does to a
`Draft`, or raises `NotLowered` with the reason. Only the classes themselves are known: a subclass
may do something else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from slipstream.augment.batch_rules import BATCH_RULES
from slipstream.augment.draft import (
    Draft,
    NotLowered,
    Rule,
    Size,
    as_probability,
    as_range,
    as_side,
    check_op,
)
from slipstream.augment.finish import Channels, Finish
from slipstream.augment.steps import (
    LEFT_RIGHT,
    TOP_BOTTOM,
    CenterCrop,
    Flip,
    RandomArea,
    RandomCrop,
    Resize,
    ResizeEdge,
)

# Pillow's numbers and torchvision's names; Pillow does "nearest-exact" as its "nearest".
_FILTERS: dict[object, str] = {
    0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box",
    "nearest": "nearest", "nearest-exact": "nearest", "lanczos": "lanczos",
    "bilinear": "bilinear", "bicubic": "bicubic", "box": "box",
}  # fmt: skip
_NAMES = ("nearest", "box", "bilinear", "bicubic", "lanczos")
_TENSOR_FILTERS = ("nearest", "bilinear", "bicubic")
_ALTERED = (
    "_forward_hooks", "_forward_pre_hooks", "forward", "get_params", "make_params", "transform",
    "_get_params", "_transform",
)  # fmt: skip


def rule_for(transform: object) -> Rule | None:
    """The rule of this transform's very class, or None.

    None too if someone hung hooks or other methods onto this one object.
    """
    own = getattr(transform, "__dict__", {})
    if any(own.get(name) for name in _ALTERED):
        return None
    name = qualified_name(transform)
    return _RULES.get(name) or BATCH_RULES.get(name)


def check_arguments(op: object, draft: Draft | None = None) -> None:
    """Raises `UsageError` where an op of ours could not follow on this draft, or on none: for when
    it is made. Of a subclass nothing is known.
    """
    rule = rule_for(op)
    if rule is not None:
        check_op(op, rule, draft or Draft(exact=True), op, 0)


def qualified_name(transform: object) -> str:
    """Module and name of the transform's class."""
    return f"{type(transform).__module__}.{type(transform).__qualname__}"


def is_compose(transform: object) -> bool:
    """Whether this is our Augment, or torchvision's own Compose, of either generation."""
    return qualified_name(transform) in (
        "slipstream.augment.augment.Augment",
        "torchvision.transforms.transforms.Compose",
        "torchvision.transforms.v2._container.Compose",
    )


def _resize(draft: Draft, transform: Any, _: int) -> tuple[Draft, str]:
    filter = _filter(transform.interpolation)
    longest = (
        as_side(limit) if (limit := getattr(transform, "max_size", None)) is not None else None
    )
    size = transform.size
    if size is None and longest is not None:
        return _resize_edge(draft, ResizeEdge(None, longest), filter, f"max_size={longest}")
    if isinstance(size, Sequence) and len(size) == 2 and longest is None:
        target = _size(size)
        return _resize_to(draft, target, filter, f"Resize({_words(target)})")
    if isinstance(size, Sequence) and len(size) == 1:
        size = size[0]
    short = as_side(size)
    if longest is not None and longest <= short:
        raise NotLowered(f"max_size {longest} is not larger than size {short}")
    shown = f"{short}" if longest is None else f"{short}, max_size={longest}"
    return _resize_edge(draft, ResizeEdge(short, longest), filter, shown)


def _resize_edge(draft: Draft, step: ResizeEdge, filter: str, shown: str) -> tuple[Draft, str]:
    name = f"Resize({shown})"
    if draft.size is not None:
        sides = step.target(*(np.array([side]) for side in draft.size))
        return _resize_to(draft, (int(sides[0][0]), int(sides[1][0])), filter, name)
    notes = _check_resize(draft, filter, name)
    # Without a limit the shorter side is known, and with it how small a picture can be.
    least = (1, 1) if step.short is None or step.longest is not None else (step.short, step.short)
    return draft.add(step, resized=True, least=least, filter=filter, notes=notes), name


def _resize_to(draft: Draft, size: Size, filter: str, name: str) -> tuple[Draft, str]:
    if draft.size == size:
        return draft, name
    notes = _check_resize(draft, filter, name)
    step = Resize(*size)
    return draft.add(step, resized=True, size=size, least=size, filter=filter, notes=notes), name


def _check_resize(draft: Draft, filter: str, name: str) -> tuple[str, ...]:
    """The notes of the draft once it resizes here; raises if the engine cannot."""
    if draft.resized:
        raise NotLowered("a second resize")
    if draft.flipped:
        raise NotLowered("a resize after a flip")
    if not draft.is_tensor:
        return draft.notes
    if draft.exact:
        raise NotLowered("resizes a tensor: torch's pixels differ from Pillow's")
    if filter not in _TENSOR_FILTERS:
        raise NotLowered(f"torchvision cannot resize a tensor by {filter}")
    kind = "" if filter == "nearest" else "antialiased "
    return (*draft.notes, f"{name} gives Pillow's {kind}pixels, not those torch gives a tensor")


def _random_resized_crop(draft: Draft, transform: Any, op: int) -> tuple[Draft, str]:
    size, filter = _size(transform.size), _filter(transform.interpolation)
    scale, ratio = as_range(transform.scale, "scale"), as_range(transform.ratio, "ratio")
    if ratio[0] <= 0:
        raise NotLowered(f"ratio {ratio} is not above 0")
    name = f"RandomResizedCrop({_words(size)})"
    notes = _check_resize(draft, filter, name)
    steps = (RandomArea(scale, ratio, op), Resize(*size))
    return draft.add(*steps, resized=True, size=size, least=size, filter=filter, notes=notes), name


def _center_crop(draft: Draft, transform: Any, _: int) -> tuple[Draft, str]:
    size = _size(transform.size)
    if draft.least[0] < size[0] or draft.least[1] < size[1]:
        if draft.size is not None:
            raise NotLowered(f"pads every picture: they are {_words(draft.size)}")
        if draft.finish.normalize:
            raise NotLowered("pads small pictures after Normalize")
    return draft.add(CenterCrop(*size), size=size, least=size), f"CenterCrop({_words(size)})"


def _random_crop(draft: Draft, transform: Any, op: int) -> tuple[Draft, str]:
    size, padding = _size(transform.size), _padding(transform.padding)
    if any(padding):
        _check_padding(draft, transform)
    if transform.pad_if_needed:
        raise NotLowered("pads small pictures")
    end = "." if _is_v2(transform) else ""
    step = RandomCrop(*size, op, end, padding)
    return draft.add(step, size=size, least=size), f"RandomCrop({_words(size)})"


def _padding(value: Any) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of torchvision's padding: one number, two or four."""
    values = list(value) if isinstance(value, Sequence) else [0 if value is None else value]
    if len(values) not in (1, 2, 4) or not all(type(v) is int and v >= 0 for v in values):
        raise NotLowered(f"padding {value!r} is not one, two or four numbers of pixels")
    left, top, right, bottom = (values * 4)[:4]
    return left, top, right, bottom


def _check_padding(draft: Draft, transform: Any) -> None:
    """Raises where zeros around the picture at hand are not what lies around a window."""
    mode, fill = getattr(transform, "padding_mode", "constant"), getattr(transform, "fill", 0)
    if mode != "constant" or not (fill is None or (isinstance(fill, (int, float)) and fill == 0)):
        raise NotLowered("pads with something else than black")
    if draft.finish.normalize:
        raise NotLowered("pads after Normalize")
    cuts = [step for step in draft.steps if not isinstance(step, Flip)]
    if cuts and not isinstance(cuts[-1], (Resize, ResizeEdge)):
        raise NotLowered("pads a part of the picture")


def _flip(axis: int) -> Rule:
    def rule(draft: Draft, transform: Any, op: int) -> tuple[Draft, str]:
        p = as_probability(transform.p)
        name = f"{type(transform).__name__}(p={p:g})"
        return draft.add_flip(Flip(axis, p, op)), name

    return rule


def _to_tensor(draft: Draft, transform: Any, _: int) -> tuple[Draft, str]:
    if draft.is_tensor and _is_v2(transform):
        return draft, "ToTensor"  # leaves tensors alone
    _want_picture(draft)
    if torch.get_default_dtype() != torch.float32:
        raise NotLowered(f"torch's default dtype is {_dtype_name(torch.get_default_dtype())}")
    dtype = getattr(transform, "dtype", torch.float32)
    last = getattr(transform, "memory_format", None) is torch.channels_last
    finish = Finish("float", "divide", planar=True, dtype=dtype, channels_last=last)
    return replace(draft, finish=finish), "ToTensor"


def _pil_to_tensor(draft: Draft, transform: Any, _: int) -> tuple[Draft, str]:
    if draft.is_tensor and _is_v2(transform):
        return draft, "PILToTensor"  # leaves tensors alone
    _want_picture(draft)
    return replace(draft, finish=Finish("uint8")), "PILToTensor"


def _to_image(draft: Draft, transform: Any, _: int) -> tuple[Draft, str]:
    finish = replace(draft.finish, image=True) if draft.is_tensor else Finish("uint8", image=True)
    return replace(draft, finish=finish), "ToImage"


def _to_pure_tensor(draft: Draft, transform: Any, _: int) -> tuple[Draft, str]:
    return replace(draft, finish=replace(draft.finish, image=False)), "ToPureTensor"


def _to_dtype(draft: Draft, transform: Any, _: int) -> tuple[Draft, str]:
    if not isinstance(transform.dtype, torch.dtype):
        raise NotLowered("dtypes by type of tensor")
    name = f"ToDtype({_dtype_name(transform.dtype)})"
    if not draft.is_tensor:
        return draft, name  # leaves pictures alone
    finish = _converted(draft.finish, transform.dtype, "multiply" if transform.scale else "none")
    return replace(draft, finish=finish), name


def _convert_image_dtype(draft: Draft, transform: Any, _: int) -> tuple[Draft, str]:
    if not draft.is_tensor:
        raise NotLowered("wants a tensor, but the picture is none yet")
    scale = "multiply" if _is_v2(transform) else "divide"
    finish = _converted(draft.finish, transform.dtype, scale)
    name = f"ConvertImageDtype({_dtype_name(transform.dtype)})"
    return replace(draft, finish=finish), name


def _converted(finish: Finish, dtype: torch.dtype, scale: Any) -> Finish:
    now = torch.uint8 if finish.kind == "uint8" else finish.dtype
    if dtype == now:
        return finish
    if dtype != torch.float32 or finish.kind == "float":
        raise NotLowered(f"gives {_dtype_name(dtype)}; the engine gives uint8 and float32")
    return replace(finish, kind="float", scale=scale)


def _normalize(draft: Draft, transform: Any, _: int) -> tuple[Draft, str]:
    if draft.finish.kind != "float":
        raise NotLowered("wants floats, but the picture holds bytes")
    mean, std = _channels(transform.mean, "mean"), _channels(transform.std, "std")
    if not all(np.float32(value) for value in std):
        raise NotLowered("std has a zero")
    steps = (*draft.finish.normalize, (mean, std))
    return replace(draft, finish=replace(draft.finish, normalize=steps)), "Normalize"


def _nothing(draft: Draft, transform: Any, _: int) -> tuple[Draft, str]:
    # The engine's pictures have three channels: RGB leaves them alone.
    return draft, type(transform).__name__


@dataclass(frozen=True)
class _Part:
    """Attributes of a transform that a preset does inside."""

    size: Any = None
    interpolation: Any = None
    mean: Any = None
    std: Any = None


def _image_classification(draft: Draft, preset: Any, op: int) -> tuple[Draft, str]:
    """The evaluation transforms that come with torchvision's weights."""
    _want_picture(draft)
    draft, _ = _resize(draft, _Part(preset.resize_size, preset.interpolation), op)
    draft, _ = _center_crop(draft, _Part(preset.crop_size), op)
    draft = replace(draft, finish=Finish("float", "divide"))
    draft, _ = _normalize(draft, _Part(mean=preset.mean, std=preset.std), op)
    return draft, "ImageClassification"


def _want_picture(draft: Draft) -> None:
    if draft.is_tensor:
        raise NotLowered("wants a picture, but it is a tensor by now")


def _is_v2(transform: object) -> bool:
    return type(transform).__module__.startswith("torchvision.transforms.v2.")


def _size(value: Any) -> Size:
    """Width and height of torchvision's size: a number, or (number,), or (height, width)."""
    if isinstance(value, Sequence) and len(value) in (1, 2):
        return as_side(value[-1]), as_side(value[0])
    return as_side(value), as_side(value)


def _filter(interpolation: Any) -> str:
    name = getattr(interpolation, "value", interpolation)
    filter = _FILTERS.get(name) if isinstance(name, (int, str)) else None
    if filter is None:
        raise NotLowered(f"interpolation {name!r} is none of {', '.join(_NAMES)}")
    return filter


def _channels(value: Any, name: str) -> Channels:
    try:
        values = torch.as_tensor(value, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        raise NotLowered(f"{name} {value!r} is not a list of numbers") from None
    if values.ndim > 1 or values.numel() not in (1, 3):
        raise NotLowered(f"{name} has shape {list(values.shape)}, the picture 3 channels")
    return tuple(values.reshape(-1).tolist())


def _words(size: Size) -> str:
    return f"{size[0]}" if size[0] == size[1] else f"{size[0]} x {size[1]}"


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_V1, _V2 = "torchvision.transforms.transforms.", "torchvision.transforms.v2."
_OURS = "slipstream.augment.ops."
_RULES: dict[str, Rule] = {
    f"{_OURS}CenterCrop": _center_crop,
    f"{_OURS}Normalize": _normalize,
    f"{_OURS}PILToTensor": _pil_to_tensor,
    f"{_OURS}RandomCrop": _random_crop,
    f"{_OURS}RandomHorizontalFlip": _flip(LEFT_RIGHT),
    f"{_OURS}RandomResizedCrop": _random_resized_crop,
    f"{_OURS}RandomVerticalFlip": _flip(TOP_BOTTOM),
    f"{_OURS}Resize": _resize,
    f"{_OURS}ToTensor": _to_tensor,
    f"{_V1}CenterCrop": _center_crop,
    f"{_V1}ConvertImageDtype": _convert_image_dtype,
    f"{_V1}Normalize": _normalize,
    f"{_V1}PILToTensor": _pil_to_tensor,
    f"{_V1}RandomCrop": _random_crop,
    f"{_V1}RandomHorizontalFlip": _flip(LEFT_RIGHT),
    f"{_V1}RandomResizedCrop": _random_resized_crop,
    f"{_V1}RandomVerticalFlip": _flip(TOP_BOTTOM),
    f"{_V1}Resize": _resize,
    f"{_V1}ToTensor": _to_tensor,
    f"{_V2}_color.RGB": _nothing,
    f"{_V2}_deprecated.ToTensor": _to_tensor,
    f"{_V2}_geometry.CenterCrop": _center_crop,
    f"{_V2}_geometry.RandomCrop": _random_crop,
    f"{_V2}_geometry.RandomHorizontalFlip": _flip(LEFT_RIGHT),
    f"{_V2}_geometry.RandomResizedCrop": _random_resized_crop,
    f"{_V2}_geometry.RandomVerticalFlip": _flip(TOP_BOTTOM),
    f"{_V2}_geometry.Resize": _resize,
    f"{_V2}_misc.ConvertImageDtype": _convert_image_dtype,
    f"{_V2}_misc.Identity": _nothing,
    f"{_V2}_misc.Normalize": _normalize,
    f"{_V2}_misc.ToDtype": _to_dtype,
    f"{_V2}_type_conversion.PILToTensor": _pil_to_tensor,
    f"{_V2}_type_conversion.ToImage": _to_image,
    f"{_V2}_type_conversion.ToPureTensor": _to_pure_tensor,
    "torchvision.transforms._presets.ImageClassification": _image_classification,
}
