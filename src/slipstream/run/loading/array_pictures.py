"""Pictures that a dataset of torchvision holds in one array (MNIST and its kin, CIFAR), a batch at
a time. Random numbers are drawn as its transforms draw them, sample by sample; the arithmetic is
theirs, on all samples at once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image

from slipstream.augment.rules import qualified_name
from slipstream.run.evaluating.purity import has_hooks
from slipstream.run.loading.conversions import Refused

_MODES = {
    ("torchvision.datasets.mnist", "MNIST.__getitem__"): "L",
    ("torchvision.datasets.cifar", "CIFAR10.__getitem__"): "RGB",
}
_HELD = ("data", "targets", "transform", "target_transform")
_V1 = "torchvision.transforms.transforms."
_FLIPS = {f"{_V1}RandomHorizontalFlip": 1, f"{_V1}RandomVerticalFlip": 0}  # the axis
_Move = Callable[[Any], Any]
_Shape = tuple[int, ...]


class ArrayPictures:
    """Looks up what `dataset` holds anew for every batch: it may have changed."""

    def __init__(self, dataset: Any, mode: str) -> None:
        self._dataset, self._mode = dataset, mode
        self._getter = type(dataset).__getitem__

    def kinds(self) -> list[Any]:
        """Of what is looked up, and of what is done with it."""
        data, targets, transform, _ = (vars(self._dataset)[name] for name in _HELD)
        steps = [qualified_name(step) for step in _steps(transform)]
        held = type(data), data.dtype, tuple(data.shape[1:]), type(targets)
        return [self._getter, *held, *steps]

    def check(self) -> None:
        """Raises where no batch could be made."""
        self._plan(_steps(vars(self._dataset)["transform"]), vars(self._dataset)["data"].shape[1:])

    def gather(self, index: list[int]) -> list[torch.Tensor]:
        """The batch of these. Raises where that is not certain, with nothing drawn."""
        data, targets, transform, target_transform = (vars(self._dataset)[name] for name in _HELD)
        if type(self._dataset).__getitem__ is not self._getter or target_transform is not None:
            raise Refused
        if torch.get_default_device().type != "cpu":
            raise Refused  # random numbers come from another generator
        pixels, targets = self._pixels(data, index), self._targets(targets, index)
        moves, rest = self._plan(_steps(transform), pixels.shape[1:])
        before = torch.get_rng_state() if moves else None
        try:
            return [_finished(_moved(pixels, moves), rest), targets]
        except BaseException:
            if before is not None:
                torch.set_rng_state(before)
            raise

    def _pixels(self, data: Any, index: list[int]) -> Any:
        if self._mode == "L":
            if type(data) is not torch.Tensor or data.device.type != "cpu":
                raise Refused
            data = data.numpy()
        colours = () if self._mode == "L" else (3,)
        if type(data) is not np.ndarray or data.dtype != np.uint8:
            raise Refused
        if data.ndim < 3 or data.shape[3:] != colours:
            raise Refused
        return data[_checked(index, len(data))]

    def _targets(self, targets: Any, index: list[int]) -> torch.Tensor:
        if self._mode == "L" and type(targets) is torch.Tensor:
            if targets.ndim != 1 or targets.dtype != torch.int64:
                raise Refused
            return targets[torch.tensor(_checked(index, len(targets)))]
        if type(targets) is not list:
            raise Refused
        found = [targets[one] for one in index]
        if set(map(type, found)) != {int}:
            raise Refused
        return torch.tensor(found)

    def _plan(self, steps: list[Any], shape: _Shape) -> tuple[list[_Move], list[Any]]:
        """What is done with each picture, and with the batch behind it."""
        moves: list[_Move] = []
        if any(isinstance(step, torch.nn.Module) and has_hooks(step) for step in steps):
            raise Refused
        for place, step in enumerate(steps):
            name = qualified_name(step)
            if name == f"{_V1}ToTensor":
                rest = steps[place + 1 :]
                if any(qualified_name(one) != f"{_V1}Normalize" for one in rest):
                    raise Refused
                return moves, rest
            if name in _FLIPS:
                moves.append(_flip(step, _FLIPS[name]))
            elif name in _RESHAPING:
                move, size = _RESHAPING[name](step, shape, self._mode)
                moves.append(move)
                shape = (*size, *shape[2:])
            else:
                break
        raise Refused


def pictures_in_an_array(dataset: Any) -> ArrayPictures | None:
    """If torchvision's own code looks them up, and what is done with them is known."""
    kind = type(dataset)
    getter = getattr(kind, "__getitem__", None)
    name = getattr(getter, "__module__", ""), getattr(getter, "__qualname__", "")
    if name not in _MODES or hasattr(getter, "__wrapped__"):
        return None
    if any(hasattr(kind, held) for held in _HELD):
        return None
    pictures = ArrayPictures(dataset, _MODES[name])
    try:
        pictures.check()
    except Exception:  # by arguments of any kind
        return None
    return pictures


def _steps(transform: Any) -> list[Any]:
    return (
        list(transform.transforms) if qualified_name(transform) == f"{_V1}Compose" else [transform]
    )


def _checked(index: list[int], count: int) -> list[int]:
    if min(index) < 0 or max(index) >= count:
        raise Refused
    return index


def _flip(step: Any, axis: int) -> _Move:
    def flip(picture: Any) -> Any:
        return np.flip(picture, axis) if torch.rand(1) < step.p else picture

    return flip


def _crop(step: Any, shape: _Shape, mode: str) -> tuple[_Move, _Shape]:
    if step.pad_if_needed:
        raise Refused
    pad, (height, width) = _pad(step, shape, mode)
    blank = Image.new(mode, (width, height))

    def crop(picture: Any) -> Any:
        padded = pad(picture)
        y, x, high, wide = step.get_params(blank, step.size)
        return padded[y : y + high, x : x + wide]

    return crop, tuple(step.size)


def _pad(step: Any, shape: _Shape, mode: str) -> tuple[_Move, _Shape]:
    if step.padding_mode != "constant" or step.fill != 0:
        raise Refused
    left, top, right, bottom = _edges(step.padding)
    height, width = shape[:2]
    padded = np.zeros((top + height + bottom, left + width + right, *shape[2:]), np.uint8)
    inside = padded[top : top + height, left : left + width]

    def pad(picture: Any) -> Any:
        inside[...] = picture
        return padded

    return pad, padded.shape[:2]


def _by_pillow(step: Any, shape: _Shape, mode: str) -> tuple[_Move, _Shape]:
    """One that draws nothing."""
    height, width = shape[:2]
    after = step(Image.new(mode, (width, height)))
    if after.size == (width, height):
        return lambda picture: picture, shape[:2]
    # Pillow takes no array that is the mirror image of another.
    return (
        lambda picture: np.asarray(step(Image.fromarray(np.ascontiguousarray(picture)))),
        (after.height, after.width),
    )


_RESHAPING = {
    f"{_V1}RandomCrop": _crop,
    f"{_V1}Pad": _pad,
    f"{_V1}Resize": _by_pillow,
    f"{_V1}CenterCrop": _by_pillow,
}


def _edges(padding: Any) -> tuple[int, int, int, int]:
    values = [0] if padding is None else [padding] if isinstance(padding, int) else list(padding)
    if set(map(type, values)) != {int} or min(values) < 0 or len(values) not in (1, 2, 4):
        raise Refused
    left, top, right, bottom = values * (4 // len(values))
    return left, top, right, bottom


def _moved(pixels: Any, moves: list[_Move]) -> Any:
    if not moves:
        return pixels
    batch = None
    for number, picture in enumerate(pixels):
        moved = picture
        for move in moves:
            moved = move(moved)
        if batch is None:
            batch = np.empty((len(pixels), *moved.shape), np.uint8)
        batch[number] = moved
    return batch


def _finished(pixels: Any, rest: list[Any]) -> torch.Tensor:
    """As ToTensor and those behind it do it: one number does not know of the others."""
    dtype = torch.get_default_dtype()
    if dtype not in (torch.float32, torch.float64):
        raise Refused
    found = torch.from_numpy(pixels)
    found = found.unsqueeze(1) if found.ndim == 3 else found.permute(0, 3, 1, 2).contiguous()
    batch = found.to(dtype).div(255)
    for step in rest:
        batch = step(batch)
    return batch
