"""Bytes become the values torchvision gives them, bit for bit."""

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from slipstream.augment.finish import Finish
from slipstream.augment.lowering import lower

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Every byte in every channel, no two channels alike in a pixel.
PIXELS = np.stack([np.roll(np.arange(256, dtype=np.uint8), k) for k in (0, 3, 77)], axis=-1)
PIXELS = PIXELS.reshape(16, 16, 3)


PIPELINES: dict[str, Callable[[Any, Any], list[Any]]] = {
    "v1": lambda v1, v2: [v1.ToTensor()],
    "v1 normalized": lambda v1, v2: [v1.ToTensor(), v1.Normalize(MEAN, STD)],
    "v1 twice": lambda v1, v2: [
        v1.ToTensor(), v1.Normalize(MEAN, STD), v1.Normalize([0.1], [7.0])
    ],
    "v1 converted": lambda v1, v2: [v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)],
    "v1 arrays": lambda v1, v2: [
        v1.ToTensor(), v1.Normalize(torch.tensor(MEAN), np.array(STD))
    ],
    "v2": lambda v1, v2: [
        v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)
    ],
    "v2 unscaled": lambda v1, v2: [
        v2.ToImage(), v2.ToDtype(torch.float32), v2.Normalize(MEAN, STD)
    ],
    "v2 converted": lambda v1, v2: [v2.PILToTensor(), v2.ConvertImageDtype(torch.float32)],
    "v2 bytes": lambda v1, v2: [
        v2.ToDtype(torch.float32), v2.ToImage(), v2.ToDtype(torch.uint8)
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", PIPELINES)
def test_table_and_apply_equal_the_pipeline(lib: SimpleNamespace, name: str) -> None:
    pipeline = PIPELINES[name](lib.v1, lib.v2)
    lowered = lower(pipeline, exact=True)
    assert lowered.rest == () and lowered.why == ""
    truth: Any = Image.fromarray(PIXELS)
    for transform in pipeline:
        truth = transform(truth)
    result = lowered.finish.apply(PIXELS)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == truth.dtype and torch.equal(result, truth)
    assert result.stride() == truth.stride()
    table = lowered.finish.table()
    if truth.dtype == torch.uint8:
        assert table is None and lowered.finish.kind == "uint8"
    else:
        assert table is not None and table.shape == (3, 256) and table.dtype == torch.float32
        assert table.is_contiguous()
        channels = [table[c][torch.from_numpy(PIXELS[..., c]).long()] for c in range(3)]
        assert torch.equal(torch.stack(channels), truth)


def test_dividing_and_multiplying_differ() -> None:
    divided, multiplied = Finish("float", "divide").table(), Finish("float", "multiply").table()
    assert divided is not None and multiplied is not None
    assert not torch.equal(divided, multiplied)
    assert torch.allclose(divided, multiplied)


def test_an_array_stays_an_array() -> None:
    assert Finish().apply(PIXELS) is PIXELS
    assert Finish().table() is None


def test_apply_does_not_share_memory() -> None:
    pixels = PIXELS[:, ::-1].copy()
    result = Finish("uint8").apply(pixels[:, ::-1])
    pixels[:] = 0
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, torch.from_numpy(PIXELS).permute(2, 0, 1))


def test_pickles() -> None:
    finish = Finish("float", "divide", ((MEAN, STD),), planar=True)
    assert pickle.loads(pickle.dumps(finish)) == finish


def test_what_runs_as_given_sees_torchvisions_types() -> None:
    reason = "torchvision is not installed: only it has tv_tensors"
    v2 = pytest.importorskip("torchvision.transforms.v2", reason=reason)
    seen: list[type] = []

    def look(value: Any) -> Any:
        seen.append(type(value))
        return value

    scaled = v2.ToDtype(torch.float32, scale=True)
    for start in (
        [v2.ToImage(), scaled],
        [v2.ToImage(), v2.ToPureTensor()],
        [v2.PILToTensor()],
        [],
    ):
        pipeline = v2.Compose([*start, look])
        pipeline(Image.fromarray(PIXELS))
        lower(pipeline, exact=True).complete(PIXELS)
    assert seen[0::2] == seen[1::2]
    assert len(set(seen)) == 3
