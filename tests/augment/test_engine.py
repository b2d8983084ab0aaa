"""The engine, the loader's random words and the plan together give Pillow's pixels."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from slipstream import _native, open_dataset
from slipstream.augment.lowering import lower
from slipstream.augment.pillow import apply
from slipstream.store.images import decode_images
from tests.augment.standins import InterpolationMode, v1

PIPELINES = {
    "train": [v1.RandomResizedCrop(24), v1.RandomHorizontalFlip()],
    "evaluate": [v1.Resize(20, InterpolationMode.BICUBIC), v1.CenterCrop(16)],
    "window": [v1.Resize((40, 30)), v1.RandomCrop((13, 9)), v1.RandomVerticalFlip(0.7)],
    "flip first": [v1.RandomHorizontalFlip(), v1.RandomVerticalFlip(), v1.RandomCrop((5, 11))],
}


@pytest.mark.parametrize("name", PIPELINES)
def test_engine_equals_pillow(mixed_dataset: Path, name: str) -> None:
    dataset = open_dataset(mixed_dataset)
    indices = np.arange(len(dataset))
    widths, heights = (dataset.column("image", side) for side in ("width", "height"))

    def random(op: int, blocks: int) -> npt.NDArray[np.uint32]:
        return _native.philox(7, 1, indices, op, blocks)

    geometry = lower(PIPELINES[name], exact=True).geometry
    windows = geometry.draw(widths, heights, random)
    assert geometry.size is not None
    left_out = [*windows.refused, *windows.padded]
    pixels, status = decode_images(
        dataset, indices, windows.boxes, geometry.size,
        filter=geometry.filter, flips=windows.flips, resized=windows.resized,
    )  # fmt: skip
    compared = 0
    for k in np.setdiff1d(indices, left_out).tolist():
        assert status[k] == 0
        truth = apply(windows.row(k), Image.fromarray(dataset[k]["image"]))
        assert (pixels[k] == np.asarray(truth)).all(), (name, k, windows.row(k))
        compared += 1
    assert compared > len(dataset) // 2
