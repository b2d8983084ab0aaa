"""`Augment` called with a batch of tensors."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import slipstream
from slipstream.augment import (
    CenterCrop,
    ColorJitter,
    CutMix,
    GaussianBlur,
    Mixup,
    Normalize,
    PILToTensor,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToTensor,
    TrivialAugmentWide,
)
from slipstream.augment.whole_batch import torch_random
from slipstream.errors import UsageError

COUNT, HEIGHT, WIDTH = 6, 20, 27
FLIPS = [RandomHorizontalFlip(), RandomVerticalFlip()]
JITTER = ColorJitter(0.4, 0.4, 0.4, 0.1)
NORMALIZE = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = ToTensor(torch.float16, torch.channels_last)
PIPELINES: dict[str, list[Any]] = {
    "flips": FLIPS,
    "floats": [*FLIPS, ToTensor(), NORMALIZE],
    "half": [*FLIPS, HALF, NORMALIZE],
    "bytes": [*FLIPS, JITTER, PILToTensor()],
    "train": [*FLIPS, JITTER, RandomGrayscale(0.5), HALF, NORMALIZE, RandomErasing(1.0)],
    "flip behind colours": [JITTER, *FLIPS, ToTensor()],
    "flip behind boxes": [RandomErasing(1.0), *FLIPS, HALF, NORMALIZE],
    "flip behind all": [TrivialAugmentWide(), ToTensor(), NORMALIZE, *FLIPS],
    "blur": [*FLIPS, GaussianBlur(5), ToTensor(), NORMALIZE],
    "blur of floats": [ToTensor(), NORMALIZE, GaussianBlur(3)],
    "rand": [*FLIPS, RandAugment(), HALF],
    "trivial": [TrivialAugmentWide(), ToTensor()],
    "crop": [CenterCrop(11), *FLIPS, JITTER, HALF],
    "padded": [CenterCrop((30, 9)), ToTensor()],
    "random crop": [RandomCrop((12, 10)), *FLIPS, ToTensor(), NORMALIZE],
    "padded crop": [RandomCrop((20, 27), 4), *FLIPS, ToTensor(), NORMALIZE],
    "nothing": [],
}


def pictures(count: int = COUNT) -> torch.Tensor:
    """Bytes [N, 3, H, W] in the order of decoded pictures."""
    shape = (count, HEIGHT, WIDTH, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def augmented(ops: list[Any], given: Any, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return slipstream.Augment(*ops)(given)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_batch_of_one_is_the_picture(name: str) -> None:
    one = pictures(1)
    for seed in range(4):
        batch = augmented(PIPELINES[name], one, seed)
        alone = augmented(
            PIPELINES[name], Image.fromarray(one[0].permute(1, 2, 0).contiguous().numpy()), seed
        )
        if isinstance(alone, Image.Image):
            alone = torch.from_numpy(np.array(alone)).permute(2, 0, 1)
        assert batch.dtype == alone.dtype and torch.equal(batch[0], alone)


@pytest.mark.parametrize("name", PIPELINES)
def test_strides_make_no_difference(name: str) -> None:
    pixels = pictures()
    wide = torch.zeros((COUNT, 3, HEIGHT + 3, 2 * WIDTH), dtype=torch.uint8)
    wide[:, :, 1:-2, ::2] = pixels
    expected = augmented(PIPELINES[name], pixels)
    before = pixels.clone()
    for given in (pixels.contiguous(), wide[:, :, 1:-2, ::2]):
        got = augmented(PIPELINES[name], given)
        assert got.dtype == expected.dtype and torch.equal(got, expected)
    assert torch.equal(pixels, before)
    last = HALF in PIPELINES[name] or expected.dtype == torch.uint8
    assert expected.is_contiguous(
        memory_format=torch.channels_last if last else torch.contiguous_format
    )


def test_each_picture_draws_its_own() -> None:
    same = pictures(1).expand(32, -1, -1, -1)
    for op in (*FLIPS, JITTER, RandomErasing(), RandAugment(), RandomCrop(5), GaussianBlur(5)):
        kinds = {bytes(picture.contiguous().numpy()) for picture in augmented([op], same)}
        assert len(kinds) > 1, op


def test_flips_are_those_of_torch() -> None:
    pixels = pictures()
    assert torch.equal(augmented([RandomHorizontalFlip(1.0)], pixels), pixels.flip(3))
    assert torch.equal(augmented([RandomVerticalFlip(1.0)], pixels), pixels.flip(2))
    both = [RandomHorizontalFlip(1.0), RandomVerticalFlip(1.0), ToTensor()]
    assert torch.equal(augmented(both, pixels), pixels.flip((2, 3)) / 255)
    torch.manual_seed(5)
    chosen = torch_random(COUNT)(0, 1)[:, 0] < 2**31
    half = augmented([RandomHorizontalFlip()], pixels, 5)
    assert 0 < chosen.sum() < COUNT
    for picture, got, is_flipped in zip(pixels, half, chosen, strict=True):
        assert torch.equal(got, picture.flip(2) if is_flipped else picture)


@pytest.mark.parametrize("op", [RandomErasing(1.0), GaussianBlur(3), RandAugment()])
def test_a_flip_behind_what_places_pixels_flips_the_result(op: Any) -> None:
    for flips, axes in ((FLIPS[:1], (3,)), (FLIPS[1:], (2,)), (FLIPS, (2, 3))):
        always = [type(flip)(1.0) for flip in flips]
        never = [type(flip)(0.0) for flip in flips]
        whole = augmented([op, *never, ToTensor()], pictures())
        assert torch.equal(augmented([op, *always, ToTensor()], pictures()), whole.flip(axes))


def test_crops_are_windows_of_their_pictures() -> None:
    pixels = pictures()
    assert torch.equal(augmented([CenterCrop(10)], pixels), pixels[:, :, 5:15, 8:18])
    padded = augmented([CenterCrop((22, 27))], pixels)
    assert torch.equal(padded[:, :, 1:-1], pixels) and not padded[:, :, (0, -1)].any()
    for picture, crop in zip(pixels, augmented([RandomCrop((4, 6))], pixels), strict=True):
        windows = picture.unfold(1, 4, 1).unfold(2, 6, 1).permute(1, 2, 0, 3, 4)
        assert (windows == crop).flatten(2).all(2).any()
    around = torch.nn.functional.pad(pixels, (1, 3, 2, 4))
    cut = augmented([RandomCrop((20, 27), (1, 2, 3, 4))], pixels)
    for picture, crop in zip(around, cut, strict=True):
        windows = picture.unfold(1, 20, 1).unfold(2, 27, 1).permute(1, 2, 0, 3, 4)
        assert (windows == crop).flatten(2).all(2).any()
    with pytest.raises(ValueError, match=r"Required crop size \(21, 5\) is larger"):
        augmented([RandomCrop((21, 5))], pixels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_floats_stay_what_they_are(dtype: torch.dtype) -> None:
    floats = (pictures() / 255).to(dtype)
    ops = [*FLIPS, JITTER, NORMALIZE, RandomErasing(1.0)]
    got = augmented(ops, floats)
    assert got.dtype == dtype and got.is_contiguous(memory_format=torch.channels_last)
    wanted = augmented([*FLIPS, ToTensor(), JITTER, NORMALIZE, RandomErasing(1.0)], pictures())
    assert torch.allclose(got.float(), wanted, atol=1e-6 if dtype == torch.float32 else 2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_floats_are_only_cast_by_to_tensor(dtype: torch.dtype) -> None:
    floats = (pictures() / 255).to(dtype)
    cast = augmented([HALF], floats)
    assert cast.dtype == torch.float16 and torch.equal(cast, floats.half())
    assert cast.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(ToTensor(torch.float16)(floats[0]), floats[0].half())
    for ops in ([*FLIPS, JITTER], [*FLIPS, JITTER, NORMALIZE, RandomErasing(1.0)]):
        without = augmented(ops, floats.float())
        for place in range(len(ops) + 1):
            got = augmented([*ops[:place], HALF, *ops[place:]], floats)
            assert torch.equal(got, without.half()), place
    with pytest.raises(UsageError, match="ToTensor wants a picture, but it is a tensor by now"):
        augmented([HALF, HALF], floats)


def test_one_op_and_empty_batches() -> None:
    assert torch.equal(RandomHorizontalFlip(1.0)(pictures()), pictures().flip(3))
    for name, ops in PIPELINES.items():
        full, none = augmented(ops, pictures()), augmented(ops, pictures(0))
        assert none.shape == (0, *full.shape[1:]) and none.dtype == full.dtype, name


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([RandomResizedCrop(8)], "RandomResizedCrop resizes pictures as they are decoded"),
        ([Resize(8), ToTensor()], "Resize resizes pictures as they are decoded"),
        ([ToTensor(), Mixup(0.2, 3)], "Mixup mixes labels as well"),
        ([CutMix(0.2, 3)], "CutMix mixes labels as well"),
        ([NORMALIZE], "Normalize wants floats, but the picture holds bytes"),
        ([RandomErasing(), CenterCrop(8)], "CenterCrop moves pixels behind"),
        ([ToTensor(), ToTensor()], "ToTensor wants a picture, but it is a tensor by now"),
    ],
)
def test_what_a_batch_cannot_do(ops: list[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        slipstream.Augment(*ops)(pictures())


@pytest.mark.parametrize(
    "wrong",
    [torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.zeros(2, 3, 4, 4, dtype=torch.int64)],
)
def test_what_is_no_batch(wrong: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=r"takes batches \[N, 3, height, width\] of uint8"):
        slipstream.Augment(*FLIPS)(wrong)
