"""torch's DataLoader with PIL or OpenCV, as people write it. Runs in the peers' Python.

`python loading_peer.py FOLDER` reads lines `way batch workers` and answers each with the seconds of
an epoch and of its first batch. Workers stay alive between epochs.
"""

import math
import random
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

SIZE = 224


class Photos(Dataset):
    """RandomResizedCrop(224) and flip of photos, as uint8[224, 224, 3]."""

    def __init__(self, folder: str, way: str) -> None:
        self.paths = sorted(map(str, Path(folder).iterdir()))
        self.way = way

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        """A crop."""
        return (self.by_pil if self.way == "pil" else self.by_opencv)(self.paths[index])

    def by_pil(self, path: str) -> Any:
        """Decoded, cropped and resized by Pillow."""
        with Path(path).open("rb") as file:
            picture = Image.open(file).convert("RGB")
        x, y, w, h = crop_of(*picture.size)
        picture = picture.crop((x, y, x + w, y + h)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(picture))

    def by_opencv(self, path: str) -> Any:
        """Decoded, cropped and resized by OpenCV."""
        cv2.setNumThreads(0)
        picture = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        x, y, w, h = crop_of(picture.shape[1], picture.shape[0])
        picture = cv2.resize(
            picture[y : y + h, x : x + w], (SIZE, SIZE), interpolation=cv2.INTER_LINEAR
        )
        if random.random() < 0.5:
            picture = cv2.flip(picture, 1)
        return torch.from_numpy(picture)


def crop_of(width: int, height: int) -> tuple[int, int, int, int]:
    """RandomResizedCrop's crop."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    return 0, 0, width, height


def main() -> None:
    """Answer until the input ends."""
    loaders: dict[str, DataLoader] = {}
    for line in sys.stdin:
        way, batch, workers = line.split()
        if way not in loaders:
            loaders[way] = DataLoader(
                Photos(sys.argv[1], way), int(batch), shuffle=True, num_workers=int(workers),
                persistent_workers=True,
            )  # fmt: skip
        began, first = time.perf_counter(), 0.0
        for pixels in loaders[way]:
            pixels.view(-1)[::4096].sum()
            first = first or time.perf_counter() - began
        print(time.perf_counter() - began, first, flush=True)


if __name__ == "__main__":
    main()
