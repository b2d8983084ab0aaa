"""What is lowered, what is not, and what is said about it."""

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from slipstream.augment.geometry import Geometry, no_random
from slipstream.augment.lowering import Lowered, lower
from slipstream.augment.steps import Flip, RandomArea, RandomCrop, Step
from slipstream.errors import UsageError
from tests.augment import standins
from tests.augment.replay import random_words


def unknown(value: Any) -> Any:
    return value


def why(*transforms: Any, exact: bool = True) -> str:
    """Why the last of these is not lowered; all before it must be."""
    lowered = lower(transforms, exact=exact)
    assert lowered.rest == transforms[-1:], lowered.describe()
    assert lowered.why
    return lowered.why


def test_the_usual_training_pipeline(lib: SimpleNamespace) -> None:
    t = lib.v1
    jitter = t.ColorJitter()
    pipeline = t.Compose([
        t.RandomResizedCrop(224), t.RandomHorizontalFlip(), jitter, t.ToTensor(),
    ])  # fmt: skip
    lowered = lower(pipeline, exact=True)
    assert lowered.geometry.size == (224, 224) and lowered.geometry.filter == "bilinear"
    assert lowered.rest == tuple(pipeline.transforms[2:])
    assert lowered.finish.kind == "array"
    assert lowered.describe() == (
        "engine: RandomResizedCrop(224), RandomHorizontalFlip(p=0.5);"
        " as given: ColorJitter (draws and rounds in its own way), ToTensor"
    )


def test_the_usual_v2_pipeline_with_and_without_exact(lib: SimpleNamespace) -> None:
    t = lib.v2
    pipeline = t.Compose([
        t.ToImage(), t.RandomResizedCrop((224, 192), antialias=True), t.RandomHorizontalFlip(),
        t.ToDtype(torch.float32, scale=True), t.Normalize([0.5], [0.5]),
    ])  # fmt: skip
    exact = lower(pipeline, exact=True)
    assert exact.lowered == ("ToImage",) and len(exact.rest) == 4
    assert exact.why == "resizes a tensor: torch's pixels differ from Pillow's"
    assert exact.finish.kind == "uint8" and exact.finish.image and exact.geometry.size is None
    free = lower(pipeline, exact=False)
    assert free.rest == () and free.geometry.size == (192, 224) and free.finish.scale == "multiply"
    assert free.describe() == (
        "engine: ToImage, RandomResizedCrop(192 x 224), RandomHorizontalFlip(p=0.5),"
        " ToDtype(float32), Normalize\n"
        "note: RandomResizedCrop(192 x 224) gives Pillow's antialiased pixels, not those torch"
        " gives a tensor"
    )


def test_crops_and_flips_of_a_tensor_are_lowered(lib: SimpleNamespace) -> None:
    t = lib.v2
    pipeline = [
        t.Resize(40),
        t.ToImage(),
        t.RandomCrop(32),
        t.RandomVerticalFlip(0.2),
        t.CenterCrop(20),
    ]
    assert lower(pipeline, exact=True).rest == ()


def test_nothing_given() -> None:
    assert lower(None, exact=True) == lower([], exact=True) == Lowered()
    assert lower(None, exact=True).describe() == "engine: decode"


def test_nested_and_single_and_lists_are_the_same(lib: SimpleNamespace) -> None:
    t = lib.v1
    parts = [t.Resize(40), t.CenterCrop(32), t.RandomHorizontalFlip(), t.ToTensor()]
    flat = lower(parts, exact=True)
    nested = t.Compose([parts[0], lib.v2.Compose([parts[1], t.Compose([parts[2]])]), parts[3]])
    assert lower(nested, exact=True) == flat == lower(tuple(parts), exact=True)
    assert lower(parts[1], exact=True) == lower([parts[1]], exact=True)
    assert flat.rest == () and flat.geometry.size == (32, 32)


def test_a_step_is_keyed_by_its_place(lib: SimpleNamespace) -> None:
    t = lib.v1
    parts = [t.RandomCrop(32), t.Compose([t.CenterCrop(30), t.RandomResizedCrop(8)])]
    parts += [t.ToTensor(), t.RandomHorizontalFlip(), t.RandomVerticalFlip()]
    for count in range(1, 6):
        steps = lower(parts[:count], exact=True).geometry.steps
        assert ops(steps) == [0, 2, 4, 5][: [1, 2, 2, 3, 4][count - 1]]


def ops(steps: tuple[Step, ...]) -> list[int]:
    return [step.op for step in steps if isinstance(step, (Flip, RandomArea, RandomCrop))]


def test_subclasses_and_altered_transforms_are_not_known(lib: SimpleNamespace) -> None:
    class Resize(lib.v1.Resize):  # type: ignore[misc]
        pass

    class Sneaky(lib.v1.Resize):  # type: ignore[misc]
        pass

    Sneaky.__module__ = lib.v1.Resize.__module__
    altered = lib.v1.RandomResizedCrop(9)
    altered.get_params = lambda *_: (0, 0, 5, 5)
    for transform in (Resize(9), Sneaky(9), altered, unknown):
        assert why(transform) == "not known to the engine"


def test_what_cannot_be_lowered_and_why(lib: SimpleNamespace) -> None:
    v1, v2 = lib.v1, lib.v2
    image = v2.ToImage()
    assert why(v1.Resize(40), v1.Resize(30)) == "a second resize"
    assert why(v1.RandomResizedCrop(40), v1.RandomResizedCrop(30)) == "a second resize"
    assert why(v1.RandomHorizontalFlip(), v1.Resize(30)) == "a resize after a flip"
    assert why(v1.RandomCrop(32, padding=4, fill=9)) == "pads with something else than black"
    assert why(v1.CenterCrop(32), v1.RandomCrop(32, padding=4)) == "pads a part of the picture"
    assert why(v1.RandomCrop(32, pad_if_needed=True)) == "pads small pictures"
    assert why(v1.RandomCrop(20), v1.CenterCrop(32)) == "pads every picture: they are 20"
    hamming = lib.InterpolationMode.HAMMING
    assert why(v1.Resize(9, interpolation=hamming)) == (
        "interpolation 'hamming' is none of nearest, box, bilinear, bicubic, lanczos"
    )
    flip = v1.RandomHorizontalFlip()
    flip.p = torch.tensor(0.5)
    assert why(flip) == "p tensor(0.5000) is not a number"
    assert "max_size 20" in why(v1.Resize(30, max_size=20))
    lanczos = lib.InterpolationMode.LANCZOS
    assert "lanczos" in why(image, v2.Resize(9, interpolation=lanczos), exact=False)
    assert "bytes" in why(v1.PILToTensor(), v1.Normalize([0.5], [0.5]))
    assert "bytes" in why(v1.Normalize([0.5], [0.5]))
    assert "picture" in why(v1.ToTensor(), v1.ToTensor())
    assert "picture" in why(v1.PILToTensor(), lib.preset(crop_size=20, resize_size=24))
    assert "tensor" in why(v1.ConvertImageDtype(torch.float32))
    assert "float16" in why(image, v2.ToDtype(torch.float16, scale=True))
    assert "uint8" in why(v1.ToTensor(), v1.ConvertImageDtype(torch.uint8))
    assert "by type" in why(image, v2.ToDtype({torch.Tensor: torch.float32, "others": None}))
    assert "zero" in why(v1.ToTensor(), v1.Normalize([0.5], [0.0]))
    assert "shape [2]" in why(v1.ToTensor(), v1.Normalize([0.5, 0.5], [0.5, 0.5]))
    normalized = (v1.ToTensor(), v1.Normalize([0.5], [0.5]))
    assert "after Normalize" in why(*normalized, v1.CenterCrop(32))
    assert "after Normalize" in why(*normalized, v1.RandomCrop(32, padding=(0, 1)))
    assert "after Normalize" in why(v1.Resize(40, max_size=50), *normalized, v1.CenterCrop(32))
    assert lower([v1.Resize(40), *normalized, v1.CenterCrop(32)], exact=True).rest == ()


def test_ranges_the_wrong_way_round(lib: SimpleNamespace) -> None:
    crop = lib.v1.RandomResizedCrop(9)
    crop.scale = (0.9, 0.5)
    assert "scale" in why(crop)
    crop.scale, crop.ratio = (0.5, 0.9), (0.0, 1.0)
    assert "ratio" in why(crop)


def test_a_transform_of_another_version_runs_as_given(lib: SimpleNamespace) -> None:
    crop = lib.v1.RandomCrop(9)
    del crop.padding
    assert "in this version" in why(crop)


def test_another_default_dtype(lib: SimpleNamespace) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert why(lib.v1.ToTensor()) == "torch's default dtype is float64"
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_resize_that_changes_nothing_is_no_second_one(lib: SimpleNamespace) -> None:
    t = lib.v1
    start = [t.RandomResizedCrop(24), t.RandomHorizontalFlip(), t.ToTensor()]
    for same in (t.Resize(24), t.Resize((24, 24)), t.Resize([24], max_size=30)):
        assert lower([*start, same], exact=True).rest == ()
    assert lower([*start, t.Resize(25)], exact=True).rest != ()


def test_geometry_pickles_and_compares(lib: SimpleNamespace) -> None:
    t = lib.v1
    parts = [t.RandomCrop(40), t.RandomResizedCrop(24), t.RandomHorizontalFlip(0.25)]
    geometry = lower(parts, exact=True).geometry
    again = pickle.loads(pickle.dumps(geometry))
    assert again == geometry and hash(again) == hash(geometry)
    assert geometry != lower(parts[:2], exact=True).geometry
    random = random_words(0, 3)
    left, right = (g.draw([50] * 3, [60] * 3, random) for g in (geometry, again))
    assert left.boxes.tolist() == right.boxes.tolist()
    dtypes = (left.boxes.dtype, left.resized.dtype, left.sizes.dtype, left.flips.dtype)
    assert dtypes == (np.int32, np.int32, np.int32, np.uint8)


def test_an_empty_batch(lib: SimpleNamespace) -> None:
    parts = [lib.v1.RandomResizedCrop(24), lib.v1.RandomHorizontalFlip()]
    windows = lower(parts, exact=True).geometry.draw([], [], random_words(0, 0))
    assert windows.boxes.shape == (0, 4) and windows.sizes.shape == (0, 2)


def test_a_plan_without_steps_takes_whole_pictures() -> None:
    windows = Geometry().draw([7, 9], [5, 3], no_random)
    assert windows.boxes.tolist() == [[0, 0, 7, 5], [0, 0, 9, 3]]
    assert windows.resized.tolist() == [[7, 5, 0, 0], [9, 3, 0, 0]]
    assert windows.sizes.tolist() == [[7, 5], [9, 3]] and windows.padded == ()


def test_complete_runs_the_rest_on_a_picture(lib: SimpleNamespace) -> None:
    t = lib.v1
    pixels = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    lowered = lower([t.RandomCrop(4), unknown, t.PILToTensor()], exact=True)
    result = lowered.complete(pixels)
    assert torch.equal(result, torch.from_numpy(pixels).permute(2, 0, 1))
    assert isinstance(lower([unknown], exact=True).complete(pixels), Image.Image)
    assert lower([t.RandomCrop(4)], exact=True).complete(pixels) is pixels


def test_what_is_no_transform() -> None:
    with pytest.raises(UsageError, match="expected transforms"):
        lower([7], exact=True)
    with pytest.raises(UsageError, match="None"):
        lower(standins.v1.Compose([None]), exact=True)
