"""Steps on whole batches on a GPU: what the processor gives, within the stated tolerance, which is
one level of 255 for bytes and as much for floats that were made of them.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

import slipstream
from slipstream.augment import (
    ColorJitter,
    CutMix,
    GaussianBlur,
    Mixup,
    Normalize,
    PILToTensor,
    RandAugment,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    ToTensor,
    TrivialAugmentWide,
)
from slipstream.augment.auto_augment import CHANGES
from slipstream.cuda.compile import why_not
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.augment.test_functions import CASES, call, pictures
from tests.loader.test_augment import FOLLOWING, Scenes
from tests.pictures import jpeg

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

LEVEL = 1 / 255
STD = (0.229, 0.224, 0.225)
CROP = [RandomResizedCrop(48), RandomHorizontalFlip()]
JITTER = ColorJitter(0.4, 0.4, 0.4, 0.1)
NORMALIZE = Normalize((0.485, 0.456, 0.406), STD)
CLASSES = 3
# Name: the pipeline, and by how much its values may differ.
PIPELINES: dict[str, tuple[list[Any], float]] = {
    "array": ([*CROP, JITTER, RandomGrayscale(0.3)], 1),
    "bytes": ([*CROP, JITTER, PILToTensor(), GaussianBlur(5)], 1),
    "train": (
        [*CROP, JITTER, RandomGrayscale(0.3), ToTensor(), NORMALIZE, RandomErasing(0.5)],
        LEVEL / min(STD),
    ),
    "floats": ([*CROP, ToTensor(), JITTER, GaussianBlur(5), NORMALIZE], 1e-4),
    "rand": ([*CROP, RandAugment(), ToTensor()], LEVEL),
    "trivial": ([*CROP, TrivialAugmentWide(), ToTensor()], LEVEL),
    "mixup": ([*CROP, JITTER, ToTensor(), NORMALIZE, Mixup(0.4, CLASSES)], LEVEL / min(STD)),
    "cutmix": ([*CROP, ToTensor(), NORMALIZE, CutMix(1.0, CLASSES)], 1e-6),
    "half": ([*CROP, ToTensor(torch.float16, torch.channels_last), NORMALIZE], 0),
    "half and steps": (
        [*CROP, JITTER, ToTensor(torch.bfloat16, torch.channels_last), NORMALIZE],
        LEVEL / min(STD) + 2**-6,
    ),
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(40):
        place = folder / f"class{number % CLASSES}"
        place.mkdir(exist_ok=True)
        (place / f"{number:02d}.jpg").write_bytes(jpeg(90 + number, 120 - number, number))
    path = tmp_path_factory.mktemp("packed") / "photos.slip"
    pack_source(open_source(folder), path)
    return path


def make(path: Path, transform: Any, **arguments: Any) -> Any:
    dataset = slipstream.open_dataset(path)
    return slipstream.Loader(dataset, 8, shuffle=True, transform=transform, **arguments)


def check(one: torch.Tensor, other: torch.Tensor, tolerance: float) -> None:
    assert other.is_cuda and one.dtype == other.dtype and one.stride() == other.stride()
    difference = (one.double() - other.cpu().double()).abs()
    assert difference.max() <= tolerance
    # One rounded differently now and then, not another formula.
    assert (difference > 1e-5).double().mean() < 1e-3


@pytest.mark.parametrize("kind", ["bytes", "floats"])
@pytest.mark.parametrize("name", CASES)
def test_functions(name: str, kind: str) -> None:
    function, parameters, _, _ = CASES[name]
    pixels = pictures() if kind == "bytes" else pictures().to(torch.float32) / 255
    here, there = (call(function, p, parameters) for p in (pixels, pixels.cuda()))
    check(here.contiguous(), there.contiguous(), 1 if kind == "bytes" else 1e-6)


@pytest.mark.parametrize("kind", ["bytes", "floats"])
@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_auto_augment(name: str, kind: str) -> None:
    pixels = pictures() if kind == "bytes" else pictures().to(torch.float32) / 255
    strength = torch.linspace(2, 7, 6) if name == "Posterize" else torch.linspace(-0.9, 0.9, 6)
    here, there = (CHANGES[name](p, strength) for p in (pixels, pixels.cuda()))
    check(here.contiguous(), there.contiguous(), 1 if kind == "bytes" else 1e-6)


@pytest.mark.parametrize("decode", ["cpu", "gpu"])
@pytest.mark.parametrize("name", PIPELINES)
def test_loaders(packed: Path, name: str, decode: str) -> None:
    if decode == "gpu" and why_not(torch.device("cuda", 0)):
        pytest.skip("needs a GPU that the kernels run on, and cuda-core")
    transform, tolerance = PIPELINES[name]
    here, there = make(packed, transform), make(packed, transform, device="cuda", decode=decode)
    for _ in range(2):
        for one, other in zip(here, there, strict=True):
            check(one["image"], other["image"], tolerance)
            assert torch.equal(one["label"], other["label"].cpu()) and one["key"] == other["key"]


def test_resumed_on_the_gpu(packed: Path) -> None:
    transform, _ = PIPELINES["train"]
    loader = make(packed, transform, device="cuda")
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = [batch["image"].cpu() for batch in iterator]
    again = make(packed, transform, device="cuda")
    again.load_state_dict(state)
    for one, other in zip(rest, again, strict=True):
        assert torch.equal(one, other["image"].cpu())


def test_pinned_without_a_device(packed: Path) -> None:
    for name in ("train", "mixup", "half and steps"):
        for batch in make(packed, PIPELINES[name][0], pin_memory=True):
            assert batch["image"].is_pinned() and batch["label"].is_pinned()


def test_masks_boxes_and_points(tmp_path: Path) -> None:
    fields = dict.fromkeys(Scenes()[1], "auto") | {"depth": "ragged", "boxes": "ragged"}
    slipstream.pack_dataset(Scenes(), tmp_path / "scenes.slip", fields=fields)
    here, there = (make(tmp_path / "scenes.slip", FOLLOWING, device=d) for d in (None, "cuda"))
    for one, other in zip(here, there, strict=True):
        for name in ("mask", "classes", "depth", "points"):
            assert other[name].is_cuda and torch.equal(one[name], other[name].cpu())
        for left, right in zip(one["boxes"], other["boxes"], strict=True):
            assert right.is_cuda and torch.equal(left, right.cpu())
    for batch in make(tmp_path / "scenes.slip", FOLLOWING, pin_memory=True):
        for name in ("mask", "classes", "depth", "points", "label"):
            assert batch[name].is_pinned()
        assert all(boxes.is_pinned() for boxes in batch["boxes"] if boxes.numel())
