"""What storing pixels in place of files gains in reading time."""

import io
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from slipstream.pack.sources.source import Source
from slipstream.store.reader import Store
from slipstream.store.schema import PICTURES
from slipstream.store.values import decode_value

_PICTURES = 32


@dataclass(frozen=True)
class ReadingCost:
    """Seconds per picture: decoding its file by Pillow, and reading its stored pixels."""

    pictures: int
    decode_s: float
    read_s: float


def compare_reading(source: Source, path: Path) -> ReadingCost | None:
    """Measure both on the first pictures, alternating. None where the source has no pictures."""
    numbers = [n for n, field in enumerate(source.fields) if field.kind in PICTURES]
    if not numbers:
        return None
    number = numbers[0]
    store = Store(path)
    decode_s = read_s = 0.0
    count = 0
    for item in source.items(0):
        if count == min(_PICTURES, store.samples):
            break
        if item.error:
            continue
        begin = time.perf_counter()
        try:
            with Image.open(io.BytesIO(item.values[number])) as picture:
                np.asarray(picture.convert("RGB"))
        except Exception:  # an item that pack has skipped
            continue
        middle = time.perf_counter()
        shard, local = store.find(count)
        decode_value(store.fields[number], shard.payload(number, local), "")
        decode_s += middle - begin
        read_s += time.perf_counter() - middle
        count += 1
    if count == 0:
        return None
    return ReadingCost(count, decode_s / count, max(read_s / count, 1e-9))
