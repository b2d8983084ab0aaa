"""Parameters are distributed as documented, and steps do with them what the functions do. Seeds are
fixed: no test fails by chance.
"""

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from slipstream.augment import (
    CenterCrop,
    ColorJitter,
    CutMix,
    GaussianBlur,
    Mixup,
    Normalize,
    RandAugment,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    ToTensor,
    TrivialAugmentWide,
    color,
    space,
)
from slipstream.augment.auto_augment import CHANGES, NAMES
from slipstream.augment.batch import draw_batch
from slipstream.augment.batch_steps import BatchStep
from slipstream.augment.draws import BETA_BLOCKS, beta
from slipstream.augment.finish import Finish
from slipstream.augment.lowering import lower
from slipstream.augment.mixing import Mix, mix_labels
from slipstream.errors import UsageError
from tests.augment.test_draws import alike, even
from tests.augment.test_functions import pictures

COUNT = 40_000
HEIGHT, WIDTH = 21, 18


def words(seed: int, count: int) -> Any:
    """As the loader's: a pure function of (op, blocks)."""

    def random(op: int, blocks: int) -> Any:
        generator = np.random.Generator(np.random.Philox(key=[seed, op]))
        return generator.integers(0, 2**32, (count, 4 * blocks), dtype=np.uint32)

    return random


def step_of(op: Any) -> BatchStep:
    before = [ToTensor()] if isinstance(op, (Mixup, CutMix)) else []
    (step,) = (s for s in lower([*before, op], exact=True).stages if not isinstance(s, Finish))
    return step


def draw(op: Any, count: int = COUNT, height: int = HEIGHT, width: int = WIDTH) -> Any:
    drawn = step_of(op).draw(words(5, count), height, width)
    return {name: value.numpy() for name, value in drawn.items()}


def is_uniform(values: Any, low: float, high: float) -> bool:
    expected = low + (high - low) * (np.arange(10_000) + 0.5) / 10_000
    inside = bool((values >= low - 1e-6).all() and (values <= high + 1e-6).all())
    return inside and alike(values.astype(np.float64), expected)


def test_color_jitter_draws_amounts_and_orders() -> None:
    drawn = draw(ColorJitter(0.4, (0.5, 3.0), 2.0, 0.1))
    for k, (low, high) in enumerate([(0.6, 1.4), (0.5, 3.0), (0.0, 3.0), (-0.1, 0.1)]):
        assert is_uniform(drawn["amounts"][:, k], low, high)
    orders = Counter(map(tuple, drawn["order"].tolist()))
    assert len(orders) == 24 and even(np.array(list(orders.values())))


def test_color_jitter_changes_in_the_order_drawn() -> None:
    changes = (
        color.adjust_brightness, color.adjust_contrast, color.adjust_saturation, color.adjust_hue,
    )  # fmt: skip
    step = step_of(ColorJitter(0.9, 0.9, 0.9, 0.5))
    for pixels in (pictures(), pictures().to(torch.float32) / 255):
        drawn = step.draw(words(1, len(pixels)), HEIGHT, WIDTH)
        result = step.apply(pixels, drawn)
        assert len({tuple(order) for order in drawn["order"].tolist()}) > 3
        for k in range(len(pixels)):
            one = pixels[k : k + 1]
            for which in drawn["order"][k].tolist():
                one = changes[which](one, drawn["amounts"][k : k + 1, which])
            assert torch.equal(result[k], one[0])


def test_color_jitter_leaves_out_what_is_zero() -> None:
    step = step_of(ColorJitter(saturation=0.5))
    drawn = step.draw(words(1, 6), HEIGHT, WIDTH)
    expected = color.adjust_saturation(pictures(), drawn["amounts"][:, 2])
    assert torch.equal(step.apply(pictures(), drawn), expected)


@pytest.mark.parametrize("p", [0.0, 0.2, 1.0])
def test_grayscale_and_erasing_come_with_their_probability(p: float) -> None:
    chosen = draw(RandomGrayscale(p))["chosen"]
    erased = draw(RandomErasing(p))["boxes"][:, 2] > 0
    for share in (chosen.mean(), erased.mean()):
        assert abs(share - p) <= 4 * np.sqrt(p * (1 - p) / COUNT)


def test_grayscale() -> None:
    step, pixels = step_of(RandomGrayscale(0.5)), pictures()
    drawn = step.draw(words(0, len(pixels)), HEIGHT, WIDTH)
    result, grey = step.apply(pixels, drawn), color.grayscale(pixels)
    assert 0 < drawn["chosen"].sum() < len(pixels)
    for k, chosen in enumerate(drawn["chosen"].tolist()):
        assert torch.equal(result[k], (grey if chosen else pixels)[k])


def test_blur_draws_sigma() -> None:
    assert is_uniform(draw(GaussianBlur(5, (0.3, 1.9)))["sigma"], 0.3, 1.9)
    assert (draw(GaussianBlur(5, 0.7), 10)["sigma"] == np.float32(0.7)).all()
    step = step_of(GaussianBlur((5, 3)))
    drawn = step.draw(words(0, 6), HEIGHT, WIDTH)
    expected = space.gaussian_blur(pictures(), (5, 3), drawn["sigma"])
    assert torch.equal(step.apply(pictures(), drawn), expected)


def test_erasing_draws_areas_ratios_and_places() -> None:
    side = 1000  # large, so that whole pixels do not show
    boxes = draw(RandomErasing(1.0, (0.1, 0.2), (0.5, 2.0)), height=side, width=side)["boxes"]
    left, top, width, height = boxes.T
    assert is_uniform(width * height / side**2, 0.0995, 0.2005)
    assert is_uniform(np.log(height / width), np.log(0.5) - 5e-3, np.log(2.0) + 5e-3)
    for start, length in ((left, width), (top, height)):
        assert (start >= 0).all() and (start + length <= side).all()
        assert is_uniform((start + 0.5) / (side - length + 1), 0.0, 1.0)


def test_a_box_as_large_as_the_picture_is_not_erased() -> None:
    boxes = draw(RandomErasing(1.0, (1.0, 1.0), (1.0, 1.0)), 50, 20, 20)["boxes"]
    assert not boxes[:, 2:].any()


def test_rand_augment_draws_all_changes_alike() -> None:
    drawn = draw(RandAugment(2, 9), height=331, width=662)
    for turn in range(2):
        assert even(np.bincount(drawn["which"][:, turn], minlength=14))
    pairs = np.bincount(drawn["which"][:, 0] * 14 + drawn["which"][:, 1], minlength=14 * 14)
    assert even(pairs)
    share = 9 / 30
    expected = {
        "ShearX": 0.3 * share, "ShearY": 0.3 * share, "TranslateX": 300 * share,
        "TranslateY": 150 * share, "Rotate": 30 * share, "Brightness": 0.9 * share,
        "Color": 0.9 * share, "Contrast": 0.9 * share, "Sharpness": 0.9 * share,
    }  # fmt: skip
    for name, amount in expected.items():
        strength = drawn["strength"][drawn["which"] == NAMES.index(name)]
        assert np.allclose(np.abs(strength), amount)
        assert abs((strength < 0).mean() - 0.5) < 4 * np.sqrt(0.25 / len(strength))
    for name, amount in {"Posterize": 7.0, "Solarize": 1 - share}.items():
        assert np.allclose(drawn["strength"][drawn["which"] == NAMES.index(name)], amount)


def test_trivial_augment_draws_all_strengths_alike() -> None:
    drawn = draw(TrivialAugmentWide())
    assert even(np.bincount(drawn["which"][:, 0], minlength=14))
    most = {"ShearX": 0.99, "TranslateY": 32.0, "Rotate": 135.0, "Contrast": 0.99}
    for name, amount in most.items():
        strength = drawn["strength"][drawn["which"] == NAMES.index(name)]
        bins = np.rint(np.abs(strength) / amount * 30).astype(np.int64)
        assert np.allclose(np.abs(strength), amount * bins / 30)
        assert even(np.bincount(bins, minlength=31))
    bits = drawn["strength"][drawn["which"] == NAMES.index("Posterize")]
    assert sorted(set(bits.tolist())) == [2, 3, 4, 5, 6, 7, 8]
    solar = drawn["strength"][drawn["which"] == NAMES.index("Solarize")]
    assert solar.min() == 0 and solar.max() == 1


@pytest.mark.parametrize("op", [RandAugment(3, 15), TrivialAugmentWide()])
def test_auto_augment_changes_each_picture_by_its_own(op: Any) -> None:
    pixels = torch.cat([pictures()] * 8)
    step = step_of(op)
    drawn = step.draw(words(2, len(pixels)), HEIGHT, WIDTH)
    result = step.apply(pixels, drawn)
    for k in range(len(pixels)):
        one = pixels[k : k + 1]
        turns = zip(drawn["which"][k].tolist(), drawn["strength"][k], strict=True)
        for which, strength in turns:
            if NAMES[which] != "Identity":
                one = CHANGES[NAMES[which]](one, strength.view(1))
        assert torch.equal(result[k], one[0])


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 1.0, 2.5, 30.0])
def test_beta(alpha: float) -> None:
    mine = beta(words(3, COUNT)(0, BETA_BLOCKS), alpha)
    theirs = np.random.default_rng(0).beta(alpha, alpha, COUNT)
    assert alike(mine, theirs)
    assert abs(mine.mean() - 0.5) < 4 * mine.std() / np.sqrt(COUNT)
    assert np.isclose(mine.var(), 1 / (4 * (2 * alpha + 1)), rtol=0.05)


def test_beta_at_the_ends_of_the_words() -> None:
    for word in (0, 2**32 - 1):
        found = beta(np.full((1, 4 * BETA_BLOCKS), word, np.uint32), 0.01)
        assert np.isfinite(found).all() and ((found >= 0) & (found <= 1)).all()


def test_mixup() -> None:
    step = step_of(Mixup(1.0, 5))
    pixels = pictures().to(torch.float32) / 255
    drawn = step.draw(words(0, len(pixels)), HEIGHT, WIDTH)
    share = drawn["share"].item()
    assert 0 < share < 1
    result = step.apply(pixels, drawn)
    columns = {"label": torch.tensor([0, 1, 2, 3, 4, 0])}
    labels = mix_labels(step, columns, drawn)  # type: ignore[arg-type]
    assert labels.dtype == torch.float32 and labels.shape == (6, 5)
    for k in range(6):
        expected = share * pixels[k] + (1 - share) * pixels[k - 1]
        assert (result[k] - expected).abs().max() < 1e-6
        row = torch.zeros(5)
        row[columns["label"][k]] += share
        row[columns["label"][k - 1]] += 1 - share
        assert torch.allclose(labels[k], row)


def test_cutmix() -> None:
    step = step_of(CutMix(1.0, 2))
    pixels = pictures()
    seen = []
    for seed in range(60):
        drawn = step.draw(words(seed, len(pixels)), HEIGHT, WIDTH)
        left, top, width, height = drawn["boxes"][0].tolist()
        seen.append((left, top, width, height))
        assert 0 <= left <= left + width <= WIDTH and 0 <= top <= top + height <= HEIGHT
        assert np.isclose(drawn["share"].item(), 1 - width * height / (WIDTH * HEIGHT))
        result = step.apply(pixels, drawn)
        for k in range(len(pixels)):
            expected = pixels[k].clone()
            area = (slice(None), slice(top, top + height), slice(left, left + width))
            expected[area] = pixels[k - 1][area]
            assert torch.equal(result[k], expected)
    assert len(set(seen)) > 50


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": 0, "y": 1}, r'mixes the field "label", and samples hold image, y'),
        ({"label": torch.zeros(3)}, r"is torch.float32\[3\]"),
        ({"label": ["a", "b"]}, "is a list of 2"),
        ({"label": torch.zeros((3, 2), dtype=torch.int64)}, r"is torch.int64\[3, 2\]"),
        ({"label": torch.tensor([0, 5])}, "num_classes=5, and the field .* holds 5"),
        ({"label": torch.tensor([-1, 4])}, "holds -1"),
    ],
)
def test_labels_that_cannot_be_mixed(columns: Any, message: str) -> None:
    step = Mix(1.0, 5, "label", 0)
    drawn = step.draw(words(0, 2), HEIGHT, WIDTH)
    with pytest.raises(UsageError, match=message):
        mix_labels(step, columns, drawn)


def run(pipeline: list[Any], pixels: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Stages of a pipeline that has no geometry, on a batch."""
    lowered = lower(pipeline, exact=True)
    assert not lowered.rest
    drawn = draw_batch(lowered.stages, words(seed, len(pixels)), *pixels.shape[2:])
    return drawn.run(lowered.finish.apply_to_batch(pixels))


def test_stages_run_in_the_order_given() -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    pixels = pictures()
    floats = pixels.to(torch.float32) / 255
    tensors = [torch.tensor(v).view(3, 1, 1) for v in (mean, std)]
    before = run([RandomErasing(1.0), ToTensor(), Normalize(mean, std)], pixels)
    between = run([ToTensor(), RandomErasing(1.0), Normalize(mean, std)], pixels)
    after = run([ToTensor(), Normalize(mean, std), RandomErasing(1.0)], pixels)
    boxes = [
        step_of(RandomErasing(1.0)).draw(lambda _, n, op=op: words(0, 6)(op, n), HEIGHT, WIDTH)
        for op in (0, 1, 2)
    ]
    zero = torch.zeros(3)
    normalized = (floats - tensors[0]) / tensors[1]
    black = (space.erase(floats, boxes[0]["boxes"], zero) - tensors[0]) / tensors[1]
    assert torch.allclose(before, black, atol=1e-6)
    black = (space.erase(floats, boxes[1]["boxes"], zero) - tensors[0]) / tensors[1]
    assert torch.allclose(between, black, atol=1e-6)
    assert torch.allclose(after, space.erase(normalized, boxes[2]["boxes"], zero), atol=1e-6)


def test_colours_may_come_before_flips() -> None:
    lowered = lower([ColorJitter(0.4), RandomHorizontalFlip(), ToTensor()], exact=True)
    assert not lowered.rest and len(lowered.geometry.steps) == 1
    assert lowered.describe() == (
        "engine: RandomHorizontalFlip(p=0.5); on whole batches: ColorJitter, ToTensor"
    )
    for before in (RandomErasing(), GaussianBlur(3), RandAugment(), TrivialAugmentWide()):
        late = lower([before, RandomHorizontalFlip(), ToTensor()], exact=True)
        assert not late.rest and not late.geometry.steps
        assert late.batched[1:] == ("RandomHorizontalFlip(p=0.5)", "ToTensor")
    crop = lower([RandomErasing(), RandomHorizontalFlip(), CenterCrop(8)], exact=True)
    assert len(crop.rest) == 1 and "moves pixels" in crop.why


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "middle",
    [[], [RandomErasing(1.0, value=0.3)], [GaussianBlur(3)], [RandomGrayscale()]],
    ids=["nothing", "erasing", "blur", "grey"],
)
def test_half_precision_is_rounded_once_in_the_end(dtype: torch.dtype, middle: list[Any]) -> None:
    def pipeline(*arguments: Any) -> list[Any]:
        normalize = Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
        return [ColorJitter(0.4), ToTensor(*arguments), *middle, normalize]

    exact = run(pipeline(), pictures())
    rounded = run(pipeline(dtype, torch.channels_last), pictures())
    assert exact.dtype == torch.float32 and exact.is_contiguous()
    assert rounded.dtype == dtype and rounded.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(rounded, exact.to(dtype))


def test_bytes_stay_bytes() -> None:
    result = run([ColorJitter(0.4), GaussianBlur(3)], pictures())
    assert result.dtype == torch.uint8 and result.shape == (6, HEIGHT, WIDTH, 3)
    assert result.is_contiguous()


def test_lowered_pipelines_pickle_and_compare() -> None:
    ops = [
        ColorJitter(0.4, hue=0.1), GaussianBlur(3), RandAugment(), RandomGrayscale(),
        ToTensor(torch.float16, torch.channels_last), RandomErasing(), Mixup(0.2, 3),
        CutMix(1.0, 3),
    ]  # fmt: skip
    lowered = lower(ops, exact=True)
    again = pickle.loads(pickle.dumps(lowered))
    assert again == lowered and hash(again.stages) == hash(lowered.stages)


def test_numbers_do_not_move_when_a_transform_is_added() -> None:
    pixels = pictures()
    short = run([ColorJitter(0.4, 0.4)], pixels)
    longer = run([ColorJitter(0.4, 0.4), RandomGrayscale(0.0)], pixels)
    assert torch.equal(short, longer)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ColorJitter(-0.1), lambda: ColorJitter((2.0, 1.0)), lambda: ColorJitter(hue=0.6),
        lambda: RandomGrayscale(1.5), lambda: GaussianBlur(4), lambda: GaussianBlur(3, 0.0),
        lambda: RandomErasing(value="random"), lambda: RandomErasing(scale=(0.5, 1.5)),
        lambda: RandAugment(0), lambda: RandAugment(2, 31), lambda: Mixup(0.0, 5),
        lambda: CutMix(1.0, 1), lambda: ToTensor(torch.float64), lambda: ToTensor(torch.uint8),
        lambda: ToTensor(memory_format=torch.preserve_format),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be(make: Any) -> None:
    with pytest.raises(UsageError):
        make()
