"""One sample at a time, in plain Python: what a transform does, given the words of the sample."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from slipstream.augment.geometry import Windows
from slipstream.augment.lowering import Lowered
from slipstream.augment.pillow import apply
from slipstream.augment.steps import Random
from tests.augment import standins

Words = npt.NDArray[np.uint32]


def random_words(seed: int, count: int) -> Random:
    """A source of words with the contract of the loader's: a pure function of (op, blocks)."""

    def random(op: int, blocks: int) -> Words:
        generator = np.random.Generator(np.random.Philox(key=[seed, op]))
        return generator.integers(0, 2**32, (count, 24), dtype=np.uint32)[:, : 4 * blocks]

    return random


def random_picture(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    return Image.fromarray(rng.integers(1, 256, (height, width, 3), dtype=np.uint8))


def draw_one(lowered: Lowered, picture: Image.Image, random: Random) -> Windows:
    return lowered.geometry.draw([picture.width], [picture.height], random)


def engine(lowered: Lowered, windows: Windows, k: int, picture: Image.Image) -> Any:
    """What `rest` gets for sample k: a Pillow picture or a tensor."""
    cut = apply(windows.row(k), picture)
    if lowered.finish.kind == "array":
        return cut
    return lowered.finish.wrap(lowered.finish.apply(np.asarray(cut)))  # type: ignore[arg-type]


def replay(
    transforms: Sequence[Any], picture: Any, random: Random, *, k: int = 0, first: int = 0
) -> Any:
    """The picture after these transforms, which stand at `first` and behind in the pipeline."""
    for op, transform in enumerate(transforms, start=first):
        name = type(transform).__name__
        if name == "RandomResizedCrop":
            box = area(transform, *standins.size_of(picture), random(op, 6)[k].tolist())
            mode = standins.InterpolationMode(transform.interpolation.value)
            picture = standins.resize(standins.crop(picture, *box), transform.size, mode)
        elif name == "RandomCrop":
            picture = random_crop(transform, picture, random(op, 1)[k].tolist())
        elif name in ("RandomHorizontalFlip", "RandomVerticalFlip"):
            if int(random(op, 1)[k, 0]) / 2**32 < transform.p:
                picture = standins.flip(picture, -1 if "Horizontal" in name else -2)
        else:
            picture = transform(picture)
    return picture


def random_crop(transform: Any, picture: Any, words: list[int]) -> Any:
    if transform.padding:
        picture = standins.pad(picture, transform.padding)
    height, width = standins.size_of(picture)
    want_height, want_width = transform.size
    if height < want_height or width < want_width:
        end = "." if ".v2." in type(transform).__module__ else ""
        raise ValueError(
            f"Required crop size {(want_height, want_width)} is larger than input image size"
            f" {(height, width)}{end}"
        )
    top = words[0] * (height - want_height + 1) >> 32
    left = words[1] * (width - want_width + 1) >> 32
    return standins.crop(picture, top, left, want_height, want_width)


def area(transform: Any, height: int, width: int, words: list[int]) -> tuple[int, int, int, int]:
    """Top, left, height and width of RandomResizedCrop's crop."""
    (small, large), (low, high) = transform.scale, map(math.log, transform.ratio)
    for t in range(10):
        target = height * width * (small + (large - small) * (words[2 * t] / 2**32))
        aspect = math.exp(low + (high - low) * (words[2 * t + 1] / 2**32))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return words[20] * (height - h + 1) >> 32, words[21] * (width - w + 1) >> 32, h, w
    w, h = width, height
    if width / height < transform.ratio[0]:
        h = round(w / transform.ratio[0])
    elif width / height > transform.ratio[1]:
        w = round(h * transform.ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w
