"""The GPU engine: pictures decoded per second, and what training gets of them.

On a machine with a GPU, torchvision and photos:  python -m benchmarks.gpu --photos FOLDER
"""

import argparse
import itertools
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

import slipstream
from benchmarks import augment_gpu
from benchmarks.claim import Claim
from benchmarks.machine import describe_machine
from slipstream.augment import Normalize, RandomHorizontalFlip, RandomResizedCrop, ToTensor
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source

_SAMPLES = 8000
_ROUNDS = 60
_THREADS = 4
_CLASSES = 50
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_TRANSFORM = [
    RandomResizedCrop(224),
    RandomHorizontalFlip(),
    ToTensor(torch.bfloat16, torch.channels_last),
    Normalize(_MEAN, _STD),
]
_BATCH = 256


def measure(files: list[Path], place: Path, models: list[str]) -> list[Claim]:
    """Decoding through the loader against nvJPEG, training against one resident batch, and
    augmentation against a copy and against torchvision.
    """
    folder = place / "photos"
    for number in range(_SAMPLES):
        label = folder / f"{number % _CLASSES:02d}"
        label.mkdir(parents=True, exist_ok=True)
        (label / f"{number:05d}.jpg").symlink_to(files[number % len(files)].absolute())
    packed = place / "photos.slip"
    pack_source(open_source(folder), packed)
    claims = _measure_decoding(packed, files)
    for name in models:
        claims += _measure_training(name, packed, folder)
    return claims + augment_gpu.measure()


def _measure_decoding(packed: Path, files: list[Path]) -> list[Claim]:
    nvjpeg = _nvjpeg_rate(files)
    claims = []
    for batch, wanted in ((1024, 100_000), (256, 80_000)):
        loader = _loader(packed, batch, decode="gpu", num_workers=_THREADS)
        rate, cores = _rate(_endless(loader), batch, seconds=3.0)
        claims.append(
            Claim(
                f"decode + RandomResizedCrop(224) + flip + normalize, bf16, batch {batch}",
                rate, f"{cores:.1f} cores busy; nvJPEG decode alone {nvjpeg:,.0f}/s",
                at_least=wanted, unit="images/s",
            )
        )  # fmt: skip
        if batch == 1024:
            claims.append(Claim("… against nvJPEG's decode alone", rate / nvjpeg, "", at_least=7.0))
    loader = _loader(packed, _BATCH, decode="cpu", num_workers=0)
    rate, cores = _rate(_endless(loader), _BATCH, seconds=3.0)
    claims.append(
        Claim("the same by the processor", rate, f"{cores:.1f} cores busy", unit="images/s")
    )
    return claims


def _nvjpeg_rate(files: list[Path]) -> float:
    from torchvision.io import ImageReadMode, decode_jpeg

    data = [torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8) for file in files]
    batch = (data * (-(-_BATCH // len(data))))[:_BATCH]

    def decode() -> Iterator[Any]:
        while True:
            yield decode_jpeg(batch, mode=ImageReadMode.RGB, device="cuda")

    return _rate(decode(), _BATCH, seconds=2.0)[0]


def _loader(packed: Path, batch: int, **options: Any) -> slipstream.Loader[Any]:
    dataset = slipstream.open_dataset(packed, fields=["image", "label"], as_tuple=True)
    # Epochs as long as those of ImageNet, or their beginnings would be measured.
    orders = (random.Random(k).sample(range(_SAMPLES), _SAMPLES) for k in range(_ROUNDS))
    return slipstream.Loader(
        dataset, batch, sampler=list(itertools.chain(*orders)), drop_last=True,
        transform=_TRANSFORM, device="cuda", **options,
    )  # fmt: skip


def _endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def _rate(batches: Iterator[Any], batch: int, *, seconds: float) -> tuple[float, float]:
    """Images per second and processors busy, after some batches to warm up."""
    for _ in range(max(10, 8192 // batch)):
        next(batches)
    torch.cuda.synchronize()
    began, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        next(batches)
        count += batch
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - began
    return count / elapsed, (time.process_time() - cpu) / elapsed


def _measure_training(name: str, packed: Path, folder: Path) -> list[Claim]:
    step = _make_step(name)
    resident = next(iter(_loader(packed, _BATCH)))

    def again() -> Iterator[Any]:
        while True:
            yield resident

    ceiling = _train(step, again())
    wanted = {"resnet50": 0.97, "resnet18": 0.95}[name]
    auto = _loader(packed, _BATCH)
    claims = []
    for what, loader in (
        ("auto", auto),
        ("gpu", _loader(packed, _BATCH, decode="gpu")),
        ("cpu", _loader(packed, _BATCH, decode="cpu")),
    ):
        settle = 40 if what != "auto" else 400
        with closing(_endless(loader)) as batches:
            rate = _train(step, batches, settle=settle)
        note = f"{rate:,.0f} of {ceiling:,.0f} images/s"
        if what == "auto":
            note += f"; {auto.choice.decode}: {auto.choice.decode_why}"
        claims.append(
            Claim(
                f"{name}, bf16, channels-last, compiled: decode={what} against one resident batch",
                rate / ceiling, note, at_least=wanted if what == "auto" else None,
            )
        )  # fmt: skip
    rate = _train(step, _endless(_torch_loader(folder)), settle=20, seconds=3.0)
    claims.append(
        Claim(
            f"{name}: DataLoader + PIL, all cores, against one resident batch",
            rate / ceiling, f"{rate:,.0f} images/s",
        )
    )  # fmt: skip
    return claims


def _make_step(name: str) -> Callable[[Any], None]:
    import torchvision

    torch._dynamo.reset()
    model = getattr(torchvision.models, name)(num_classes=_CLASSES).cuda()
    model = torch.compile(model.to(memory_format=torch.channels_last))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)

    def step(batch: Any) -> None:
        images, labels = batch
        with torch.autocast("cuda", torch.bfloat16):
            out = model(images.to(torch.bfloat16, memory_format=torch.channels_last))
            loss = torch.nn.functional.cross_entropy(out, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _train(
    step: Callable[[Any], None], batches: Iterator[Any], *, settle: int = 40, seconds: float = 4.0
) -> float:
    for _ in range(settle):
        step(next(batches))
    torch.cuda.synchronize()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        # As seldom as training loops look at their loss.
        for _ in range(50):
            step(next(batches))
        count += 50 * _BATCH
        torch.cuda.synchronize()
    return count / (time.perf_counter() - began)


def _torch_loader(folder: Path) -> Any:
    from torchvision import datasets, transforms

    pipeline = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(_MEAN, _STD),
        ]
    )
    loader = torch.utils.data.DataLoader(
        datasets.ImageFolder(folder, pipeline), _BATCH, shuffle=True, drop_last=True,
        num_workers=slipstream.cpu.usable_cores(), pin_memory=True, persistent_workers=True,
    )  # fmt: skip
    return _Moved(loader)


class _Moved:
    """Batches moved as training scripts do it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        for images, labels in self._loader:
            yield images.cuda(non_blocking=True), labels.cuda(non_blocking=True)


def main() -> None:
    """Print the table, and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=["resnet50", "resnet18"])
    parser.add_argument("--save", type=Path)
    arguments = parser.parse_args()
    files = sorted(arguments.photos.iterdir())
    with tempfile.TemporaryDirectory() as place:
        claims = measure(files, Path(place), arguments.models)
    for claim in claims:
        print(claim.shown_value, claim.shown_target, claim.met, claim.what, "|", claim.numbers)
    if arguments.save:
        result = {"machine": describe_machine(), "claims": [claim.as_dict() for claim in claims]}
        arguments.save.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
