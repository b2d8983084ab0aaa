"""Datasets as they are written by hand; a module of its own for workers that are spawned."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, get_worker_info


class ByHand(Dataset[Any]):
    """Opens, converts, crops at random, resizes, flips. The last value is where it ran, and how."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.iterdir())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        with self.files[index].open("rb") as file:
            opened = Image.open(file)
            picture = opened.convert("RGB")
        side = int(torch.randint(8, min(picture.size), (1,)))
        left = int(torch.randint(0, picture.width - side + 1, (1,)))
        top = int(torch.randint(0, picture.height - side + 1, (1,)))
        picture = picture.crop((left, top, left + side, top + side)).resize((32, 32))
        if torch.rand(1) < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        is_late = hasattr(type(picture), "_get_core")  # it says that it is Pillow's
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
        return pixels, get_worker_info() is not None, is_late
