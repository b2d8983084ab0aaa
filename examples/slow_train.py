"""A training script as they are often written, and slow.

slipstream doctor slow_train.py PHOTOS   says what is slow in it
slipstream run slow_train.py PHOTOS      runs it faster, with the same results

PHOTOS has a folder for each class; without it, pictures are made.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

PICTURES, SIDE = 256, 480
SIZE = 64


class Photos(Dataset[tuple[torch.Tensor, int]]):
    """A sample is a square of a photo, a tenth to a half of its area, somewhere in it."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*/*.jpg"))
        self.classes = sorted({file.parent.name for file in self.files})

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file = self.files[index]
        picture = Image.open(file).convert("RGB")
        side = int((picture.width * picture.height * random.uniform(0.1, 0.5)) ** 0.5)
        left = random.randint(0, picture.width - side)
        top = random.randint(0, picture.height - side)
        picture = picture.crop((left, top, left + side, top + side))
        picture = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
        return pixels, self.classes.index(file.parent.name)


def train(photos: Path, epochs: int) -> None:
    """Print the speed and the loss of every epoch."""
    torch.manual_seed(0)
    random.seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = DataLoader(Photos(photos), batch_size=16, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 8 * 8, 4)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for epoch in range(epochs):
        began, seen, total = time.perf_counter(), 0, 0.0
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            seen += len(images)
        speed = seen / (time.perf_counter() - began)
        print(f"epoch {epoch}: {speed:.1f} pictures/s, loss {total / len(loader)}", flush=True)


def make_pictures(folder: Path) -> None:
    """JPEGs of four classes: coloured clouds."""
    chance = np.random.default_rng(0)
    for number in range(PICTURES):
        place = folder / f"class{number % 4}"
        place.mkdir(exist_ok=True)
        coarse = chance.integers(0, 256, (SIDE // 16, SIDE // 16, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        picture.save(place / f"{number:03d}.jpg", quality=90)


def main() -> None:
    """Take the arguments, and make pictures where none are given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", type=Path, nargs="?", metavar="PHOTOS")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    if options.photos:
        train(options.photos, options.epochs)
        return
    with tempfile.TemporaryDirectory() as made:
        make_pictures(Path(made))
        train(Path(made), options.epochs)


# mypy: disable-error-code=no-untyped-call
if __name__ == "__main__":
    main()
