"""The lowered part and the rest give, bit for bit, what the pipeline gives."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from slipstream.augment.lowering import lower
from tests.augment import standins
from tests.augment.replay import draw_one, engine, random_picture, random_words, replay

SIZES = [(40, 30), (30, 40), (33, 33), (7, 50), (64, 9), (24, 24), (1, 1)]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Image.Image):
        return left.size == right.size and left.tobytes() == right.tobytes()
    return bool(left.dtype == right.dtype and torch.equal(left, right))


def check(pipeline: list[Any], picture: Image.Image, seed: int, *, exact: bool = True) -> str:
    """Compare on one picture; says what came of it."""
    random = random_words(seed, 1)
    lowered = lower(pipeline, exact=exact)
    windows = draw_one(lowered, picture, random)
    count = len(lowered.lowered)
    try:
        truth = replay(pipeline[:count], picture, random)
    except ValueError as error:
        assert windows.refused == {0: str(error)}
        return "refused"
    assert not windows.refused
    cut = engine(lowered, windows, 0, picture)
    assert same(cut, truth), (pipeline, picture.size, windows.row(0))
    result = windows.row(0).size
    assert result == standins.size_of(truth)[::-1]
    assert lowered.geometry.size in (None, result)
    try:
        truth = replay(pipeline, picture, random)
    except (ValueError, TypeError, RuntimeError) as error:
        with pytest.raises(type(error)):
            replay(pipeline[count:], cut, random, first=count)
        return "raised"
    assert same(replay(pipeline[count:], cut, random, first=count), truth), pipeline
    return "padded" if windows.padded else "inside"


def geometries(t: Any, modes: Any) -> list[Callable[[Any], Any]]:
    """Makers of one random transform each; they take a random generator."""
    return [
        lambda r: t.Resize(int(r.integers(5, 40)), interpolation=r.choice(list(modes)[:5])),
        lambda r: t.Resize([int(r.integers(5, 40)), int(r.integers(5, 40))]),
        lambda r: t.Resize(20, max_size=int(r.integers(21, 40)), interpolation=modes.LANCZOS),
        lambda r: t.CenterCrop(int(r.integers(3, 36))),
        lambda r: t.CenterCrop((int(r.integers(3, 36)), int(r.integers(3, 36)))),
        lambda r: t.RandomCrop((int(r.integers(3, 26)), int(r.integers(3, 26)))),
        lambda r: t.RandomCrop((int(r.integers(3, 26)), 20), padding=int(r.integers(1, 9))),
        lambda r: t.RandomCrop(int(r.integers(3, 26)), padding=r.integers(9, size=4).tolist()),
        lambda r: t.RandomHorizontalFlip(p=float(r.choice([0.0, 0.5, 1.0]))),
        lambda r: t.RandomVerticalFlip(p=float(r.choice([0.0, 0.5, 1.0]))),
        lambda r: t.RandomResizedCrop(int(r.integers(4, 30))),
        lambda r: t.RandomResizedCrop((9, 14), scale=(0.5, 2.0), ratio=(0.3, 0.6)),
    ]


def conversions(lib: SimpleNamespace, generation: str) -> list[Callable[[Any], Any]]:
    v1, v2 = lib.v1, lib.v2
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]
    if generation == "v1":
        return [
            lambda r: v1.ToTensor(),
            lambda r: v1.PILToTensor(),
            lambda r: v1.ConvertImageDtype(torch.float32),
            lambda r: v1.Normalize(mean, std),
        ]
    return [
        lambda r: v2.ToImage(),
        lambda r: v2.RGB(),
        lambda r: v2.ToDtype(torch.float32, scale=bool(r.integers(2))),
        lambda r: v2.Normalize(mean=mean, std=std),
        lambda r: v2.ToPureTensor(),
    ]


@pytest.mark.parametrize("generation", ["v1", "v2"])
def test_random_pipelines(lib: SimpleNamespace, generation: str) -> None:
    transforms = getattr(lib, generation)
    makers = geometries(transforms, lib.InterpolationMode)
    others = conversions(lib, generation)
    rng = np.random.default_rng(7)
    pictures = [random_picture(rng, *size) for size in SIZES]
    seen: dict[str, int] = {}
    for seed in range(400):
        count = int(rng.integers(1, 5))
        pipeline = [makers[k](rng) for k in rng.integers(len(makers), size=count)]
        for k in sorted(rng.integers(0, len(others), size=rng.integers(0, 4))):
            pipeline.insert(int(rng.integers(len(pipeline) + 1)), others[k](rng))
        outcome = check(pipeline, pictures[seed % len(pictures)], seed)
        seen[outcome] = seen.get(outcome, 0) + 1
    assert seen["inside"] > 100 and min(seen.values()) >= 10
    assert set(seen) == {"inside", "padded", "refused", "raised"}


@pytest.mark.parametrize("padding", [4, (2, 5), [1, 2, 3, 9]])
def test_a_crop_of_a_padded_picture(lib: SimpleNamespace, padding: Any) -> None:
    picture = random_picture(np.random.default_rng(1), 20, 16)
    seen = set()
    for t in (lib.v1, lib.v2):
        crop, flip = t.RandomCrop(15, padding=padding), t.RandomHorizontalFlip()
        for pipeline in (
            [crop], [flip, t.RandomVerticalFlip(), crop, t.CenterCrop(9)], [t.Resize(18), crop],
            [t.RandomResizedCrop(15), crop, flip], [crop, t.Resize(7), lib.v1.ToTensor()],
        ):  # fmt: skip
            assert not lower(pipeline, exact=True).rest
            seen |= {check(pipeline, picture, seed) for seed in range(20)}
    assert seen == {"inside", "padded"}


@pytest.mark.parametrize("size", SIZES)
def test_center_crop_rounds_and_pads_like_torchvision(
    lib: SimpleNamespace, size: tuple[int, int]
) -> None:
    picture = random_picture(np.random.default_rng(1), *size)
    for side in range(1, 45):
        for before in ([], [lib.v1.RandomHorizontalFlip(1.0), lib.v1.RandomVerticalFlip(1.0)]):
            outcome = check([*before, lib.v1.CenterCrop((side, 20))], picture, 0)
            assert outcome == ("padded" if side > size[1] or size[0] < 20 else "inside")


def test_a_resized_picture_is_padded_too(lib: SimpleNamespace) -> None:
    picture = random_picture(np.random.default_rng(1), 40, 30)
    for side, outcome in ((10, "inside"), (11, "padded"), (13, "padded"), (20, "padded")):
        assert check([lib.v1.Resize(10), lib.v1.CenterCrop(side)], picture, 0) == outcome


@pytest.mark.parametrize("size", SIZES)
def test_resize_of_the_shorter_side(lib: SimpleNamespace, size: tuple[int, int]) -> None:
    picture = random_picture(np.random.default_rng(1), *size)
    for side in (1, 7, 24, 30, 33):
        assert check([lib.v1.Resize(side)], picture, 0) == "inside"
        assert check([lib.v2.Resize(side, max_size=40)], picture, 0) in ("inside", "refused")
    assert check([lib.v2.Resize(None, max_size=20)], picture, 0) in ("inside", "refused")


def test_a_side_that_would_vanish_is_refused(lib: SimpleNamespace) -> None:
    picture = random_picture(np.random.default_rng(1), 2, 90)
    assert check([lib.v2.Resize(4, max_size=20)], picture, 0) == "refused"


def test_every_filter_is_pillows(lib: SimpleNamespace) -> None:
    picture = random_picture(np.random.default_rng(1), 41, 29)
    for mode in lib.InterpolationMode:
        lowered = lower(lib.v1.Resize((13, 17), interpolation=mode), exact=True)
        assert bool(lowered.rest) == (mode.value == "hamming")
        assert check([lib.v1.Resize((13, 17), interpolation=mode)], picture, 0) == "inside"
    for number in (Image.Resampling.NEAREST, Image.Resampling.LANCZOS, 3):
        assert check([lib.v2.Resize((13, 17), interpolation=number)], picture, 0) == "inside"


def test_the_evaluation_preset(lib: SimpleNamespace) -> None:
    for size in SIZES[:3]:
        picture = random_picture(np.random.default_rng(1), *size)
        transform = lib.preset(crop_size=20, resize_size=24)
        assert lower(transform, exact=True).lowered == ("ImageClassification",)
        assert check([transform], picture, 0) == "inside"


def test_a_whole_batch_is_drawn_like_its_samples(lib: SimpleNamespace) -> None:
    t, rng = lib.v1, np.random.default_rng(3)
    pipeline = [t.RandomCrop(24), t.RandomResizedCrop(16), t.RandomHorizontalFlip(), t.ToTensor()]
    pictures = [random_picture(rng, *rng.integers(20, 60, 2)) for _ in range(64)]
    lowered, random = lower(t.Compose(pipeline), exact=True), random_words(5, len(pictures))
    widths, heights = zip(*(picture.size for picture in pictures), strict=True)
    windows = lowered.geometry.draw(widths, heights, random)
    assert 5 < len(windows.refused) < 40 and not windows.padded
    assert 10 < int(windows.flips.sum()) < 54
    for k, picture in enumerate(pictures):
        if k in windows.refused:
            row = windows.row(k)
            assert (row.box, row.resized, row.size) == ((0, 0, 1, 1), (16, 16, 0, 0), (16, 16))
        else:
            assert same(
                engine(lowered, windows, k, picture), replay(pipeline, picture, random, k=k)
            )


def test_what_torchvision_does_itself_with_the_same_crop(
    lib: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = lib.v1
    picture = random_picture(np.random.default_rng(2), 50, 37)
    for seed in range(20):
        random = random_words(seed, 1)
        pipeline = t.Compose([t.RandomResizedCrop(24), t.ToTensor(), t.Normalize([0.5], [0.1])])
        lowered = lower(pipeline, exact=True)
        windows = draw_one(lowered, picture, random)
        x, y, width, height = windows.row(0).box
        box = (y, x, height, width)
        with monkeypatch.context() as patch:
            patch.setattr(t.RandomResizedCrop, "get_params", lambda *_, box=box: box)
            assert same(engine(lowered, windows, 0, picture), pipeline(picture))


def test_without_exact_tensors_are_resized_by_pillow(lib: SimpleNamespace) -> None:
    v2, picture = lib.v2, random_picture(np.random.default_rng(1), 41, 29)
    smooth = picture.resize((8, 8)).resize((41, 29), Image.Resampling.BICUBIC)
    pipeline = [v2.ToImage(), v2.Resize((13, 17)), v2.ToDtype(torch.float32, scale=True)]
    given = lower(pipeline, exact=True)
    assert given.rest == tuple(pipeline[1:]) and "tensor" in given.why
    lowered = lower(pipeline, exact=False)
    assert lowered.rest == () and "Resize(17 x 13)" in lowered.notes[0]
    windows = draw_one(lowered, smooth, random_words(0, 1))
    mine = engine(lowered, windows, 0, smooth)
    assert torch.allclose(mine, replay(pipeline, smooth, random_words(0, 1)), atol=2.01 / 255)
    by_pillow = torch.from_numpy(np.array(smooth.resize((17, 13), Image.Resampling.BILINEAR)))
    assert torch.equal(mine, by_pillow.permute(2, 0, 1).float().mul_(1.0 / 255))
