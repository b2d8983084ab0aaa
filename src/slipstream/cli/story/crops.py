"""Compares packed photos with the files they come from."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from slipstream.errors import InternalError
from slipstream.store.dataset import open_dataset
from slipstream.store.images import decode_images

_CROPS, _SIZE = 64, 64


def compare_crops(photos: Path, packed: Path) -> int:
    """How many random crops of packed photos have the pixels of the files' own, all compared."""
    dataset: Any = open_dataset(packed)
    numbers = np.arange(min(_CROPS, len(dataset)))
    chance, boxes, wanted = np.random.default_rng(0), [], []
    keys: Any = open_dataset(packed, fields=["key"])
    for number in numbers.tolist():
        with Image.open(photos / keys[number]["key"]) as picture:
            side = int(min(picture.size) * chance.uniform(0.3, 1.0))
            x, y = (int(chance.integers(0, edge - side + 1)) for edge in picture.size)
            crop = picture.convert("RGB").crop((x, y, x + side, y + side))
        wanted.append(np.asarray(crop.resize((_SIZE, _SIZE), Image.Resampling.BILINEAR)))
        boxes.append((x, y, side, side))
    pixels, status = decode_images(dataset, numbers, np.asarray(boxes, np.int32), _SIZE)
    if status.any() or not np.array_equal(pixels, np.stack(wanted)):
        raise InternalError("Crops of the packed photos differ from Pillow's.")
    return len(wanted)
