"""Train a small ResNet on class folders of pictures, packed or not.

    python examples/train.py                    # makes pictures, trains on them as they are
    slipstream pack photos photos.slip          # once
    python examples/train.py photos.slip        # the same training, packed

Stop it at any moment and start it again: it goes on from its last checkpoint, with the very next
batch.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import nn

import slipstream
from slipstream.augment import (
    CenterCrop,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToTensor,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLOATS = [ToTensor(torch.float32, torch.channels_last), Normalize(MEAN, STD)]
TRAIN = [RandomResizedCrop(96), RandomHorizontalFlip(), *FLOATS]
VALIDATE = [Resize(112), CenterCrop(96), *FLOATS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, default=Path("photos"))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--decode", choices=["auto", "cpu", "gpu"], default="auto")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.data == Path("photos") and not options.data.exists():
        make_pictures(options.data)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    # The one line that knows where the pictures are: a packed dataset, or the folder itself.
    dataset = slipstream.open_dataset(options.data, fields=["image", "label"], as_tuple=True)

    fixed = torch.Generator().manual_seed(0)
    training, validation = torch.utils.data.random_split(dataset, [0.9, 0.1], generator=fixed)
    loader = slipstream.Loader(
        training, options.batch_size, shuffle=True, drop_last=True, transform=TRAIN,
        device=device, decode=options.decode,
    )  # fmt: skip
    checks = slipstream.Loader(
        validation, options.batch_size, transform=VALIDATE, device=device, decode=options.decode
    )
    print(loader)

    model = SmallResNet(len(dataset.classes)).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    first_epoch = restore(options.checkpoint, model, optimizer, loader)
    for epoch in range(first_epoch, options.epochs):
        began, seen = time.perf_counter(), 0
        model.train()
        for step, (images, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(images)
            if step % 20 == 0:
                save(options.checkpoint, epoch, model, optimizer, loader)
        seconds = time.perf_counter() - began
        accuracy = validate(model, checks)
        print(f"epoch {epoch}: {seen / seconds:,.0f} images/s, accuracy {accuracy:.0%}")
    print(json.dumps(loader.stats(), indent=1))
    options.checkpoint.unlink(missing_ok=True)


@torch.inference_mode()
def validate(model: nn.Module, loader: slipstream.Loader) -> float:
    model.eval()
    right = [(model(images).argmax(1) == labels).float().mean() for images, labels in loader]
    return torch.stack(right).mean().item()


def save(
    path: Path, epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer, loader
) -> None:
    state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    new = path.with_suffix(".new")
    torch.save({**state, "loader": loader.state_dict()}, new)
    new.replace(path)


def restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, loader) -> int:
    if not path.exists():
        return 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    loader.load_state_dict(state["loader"])
    print(f"going on in epoch {state['epoch']}, at sample {state['loader']['position']}")
    return state["epoch"]


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.convolutions(x) + self.shortcut(x))


class SmallResNet(nn.Sequential):
    """A ResNet with one block per stage."""

    def __init__(self, classes: int) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 7, 4, 3, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            Block(16, 32, 2),
            Block(32, 64, 2),
            Block(64, 128, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(128, classes),
        )


def make_pictures(folder: Path) -> None:
    """Three classes that differ in colour."""
    import numpy as np
    from PIL import Image

    from slipstream.cli.photos import make_photo

    for name, channel in (("blue", 2), ("green", 1), ("red", 0)):
        (folder / name).mkdir(parents=True)
        for number in range(80):
            picture = np.asarray(make_photo(320, 240, np.random.default_rng(number))).copy()
            picture[..., channel] = picture[..., channel] // 2 + 128
            Image.fromarray(picture).save(folder / name / f"{number:03d}.jpg", quality=90)


if __name__ == "__main__":
    main()
