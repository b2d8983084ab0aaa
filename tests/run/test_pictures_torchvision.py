"""torchvision's own pipelines on late pictures: the same tensors. Runs where it is installed."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from slipstream.run.pictures import tensors
from tests.run.pictures_kit import FILES, late_pictures, open_bytes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of torchvision's own imports
    reason = "torchvision is not installed: its pipelines are compared where it is"
    v1 = pytest.importorskip("torchvision.transforms", reason=reason)
    v2 = pytest.importorskip("torchvision.transforms.v2", reason=reason)

NORMALIZE = v1.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
PIPELINES: dict[str, Callable[[], list[Any]]] = {
    "train": lambda: [
        v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor(), NORMALIZE,
    ],
    "evaluation": lambda: [v1.Resize(40), v1.CenterCrop(32), v1.ToTensor(), NORMALIZE],
    "bicubic": lambda: [
        v1.Resize((30, 44), v1.InterpolationMode.BICUBIC), v1.PILToTensor(),
        v1.ConvertImageDtype(torch.float32),
    ],
    "colours": lambda: [
        v1.RandomResizedCrop(32), v1.ColorJitter(0.4, 0.4, 0.4, 0.1), v1.RandomGrayscale(0.5),
        v1.ToTensor(), NORMALIZE, v1.RandomErasing(0.9),
    ],
    "RandAugment": lambda: [v1.RandomCrop(32, 4, True), v1.RandAugment(), v1.ToTensor()],
    "TrivialAugmentWide": lambda: [v1.TrivialAugmentWide(), v1.ToTensor()],
    "over the edge": lambda: [v1.CenterCrop(150), v1.ToTensor()],
    "blur and turn": lambda: [
        v1.RandomRotation(30), v1.GaussianBlur(3), v1.RandomVerticalFlip(), v1.ToTensor(),
    ],
    "five": lambda: [v1.Resize(40), v1.FiveCrop(32), _stacked],
    "v2": lambda: [
        v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5], [0.5]),
    ],
    "v2 ToTensor": lambda: [v2.Resize(40), v2.ToTensor(), v2.Normalize([0.5] * 3, [0.2] * 3)],
    "v2 colours": lambda: [
        v2.RandomPhotometricDistort(), v2.RandomZoomOut(), v2.PILToTensor(),
        v2.ToDtype(torch.float32),
    ],
}  # fmt: skip


def _stacked(pictures: Any) -> torch.Tensor:
    return torch.stack([v1.ToTensor()(picture) for picture in pictures])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compose", [v1.Compose, v2.Compose], ids=["v1", "v2"])
@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", ["4:4:4", "4:2:0", "gray", "progressive", "turned"])
def test_same_tensors(compose: Any, pipeline: str, name: str) -> None:
    def run() -> list[Any]:
        transform = compose(PIPELINES[pipeline]())
        torch.manual_seed(5)
        results = [transform(open_bytes(FILES[name]).convert("RGB")) for _ in range(4)]
        kinds = [(type(one), one.dtype, one.stride(), one.shape) for one in results]
        return [kinds, [np.ascontiguousarray(one.numpy()).tobytes() for one in results]]

    alone = run()
    with late_pictures():
        late = run()
    assert late == alone


def test_pipelines_are_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    original = tensors._tensor

    def watched(*args: Any) -> Any:
        result = original(*args)
        done.append(result[1])
        return result

    monkeypatch.setattr(tensors, "_tensor", watched)
    with late_pictures(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("train", "evaluation", "v2 ToTensor", "over the edge", "v2"):
            for compose in (v1.Compose, v2.Compose):
                compose(PIPELINES[name]())(open_bytes(FILES["4:4:4"]).convert("RGB"))
    assert done == [2, 2, 2, 2, 2, 2, 1, 1]
