"""Resize alone: against Pillow, whose bytes it gives, and OpenCV, which does less.

Runs in the peers' Python, with the extension loaded from its file: `python resizing.py EXTENSION
FILE…` prints JSON.
"""

import importlib.util
import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZE = 224


def measure(peers: Path | None, files: list[Path]) -> list[Any]:
    """Ratios on the crops that training takes, one thread."""
    from benchmarks.claim import Claim
    from slipstream import _native

    if peers is None:
        return [Claim("resize against Pillow and OpenCV", None, "no peers; see make bench")]
    assert _native.__file__ is not None
    command = [str(peers), __file__, _native.__file__, *map(str, files[:120])]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    us = json.loads(output)
    return [
        Claim(
            "resize of crops to 224 against Pillow, bilinear, 1 core",
            us["pillow"] / us["ours"], f"{us['ours']:.0f} against {us['pillow']:.0f} us",
            at_least=2,
        ),
        Claim(
            "its time against OpenCV's INTER_LINEAR, which skips pixels when it shrinks",
            us["ours"] / us["opencv"], f"{us['ours']:.0f} against {us['opencv']:.0f} us",
            at_most=1.5,
        ),
        Claim(
            "the same against OpenCV's INTER_AREA, which takes all of them in",
            us["ours"] / us["opencv_area"], f"{us['ours']:.0f} against {us['opencv_area']:.0f} us",
        ),
    ]  # fmt: skip


def main() -> None:
    """Time every way on the same crops, one after the other, several rounds."""
    import cv2
    import numpy as np
    from PIL import Image

    spec = importlib.util.spec_from_file_location("slipstream._native", sys.argv[1])
    assert spec is not None and spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    cv2.setNumThreads(1)
    generator = random.Random(0)
    pictures = [_crop(Image.open(name).convert("RGB"), generator) for name in sys.argv[2:]]
    arrays = [np.ascontiguousarray(np.asarray(picture)) for picture in pictures]
    out = np.empty((SIZE, SIZE, 3), np.uint8)

    def opencv(way: int) -> Callable[[Any, Any], object]:
        return lambda _, array: cv2.resize(array, (SIZE, SIZE), dst=out, interpolation=way)

    ways: dict[str, Callable[[Any, Any], object]] = {
        "ours": lambda _, array: native.resize(array, out, 2, 0),
        "pillow": lambda picture, _: picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR),
        "opencv": opencv(cv2.INTER_LINEAR),
        "opencv_area": opencv(cv2.INTER_AREA),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(9):
        for name, resize in ways.items():
            begin = time.perf_counter()
            for picture, array in zip(pictures, arrays, strict=True):
                resize(picture, array)
            times[name].append((time.perf_counter() - begin) / len(pictures) * 1e6)
    print(json.dumps({name: statistics.median(found) for name, found in times.items()}))


def _crop(picture: Any, generator: random.Random) -> Any:
    """RandomResizedCrop's crop."""
    width, height = picture.size
    for _ in range(10):
        area = width * height * generator.uniform(0.08, 1)
        ratio = math.exp(generator.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = generator.randint(0, width - w), generator.randint(0, height - h)
            return picture.crop((x, y, x + w, y + h))
    return picture


if __name__ == "__main__":
    main()
