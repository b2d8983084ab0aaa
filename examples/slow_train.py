"""A training script as they are often written, and slow. Ask what is slow in it:

slipstream doctor examples/slow_train.py
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

PICTURES, SIDE, STEPS = 64, 640, 200


class Photos(Dataset):
    """Large pictures, read one by one and cut down to 64 pixels."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return 16 * STEPS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = Image.open(self.files[index % len(self.files)]).convert("RGB").resize((64, 64))
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
        return pixels, index % 4


def make_pictures(folder: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(PICTURES):
        coarse = random.integers(0, 256, (SIDE // 16, SIDE // 16, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        picture.save(folder / f"{number:03d}.jpg", quality=90)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make_pictures(Path(folder))
        loader = DataLoader(Photos(Path(folder)), batch_size=16, shuffle=True)
        model = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 31 * 31, 4)
        )
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
