"""Functions on batches give each picture what a plain function gives it alone."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from slipstream.augment import color, space
from slipstream.augment.auto_augment import CHANGES
from tests.augment import references
from tests.pictures import photo

COUNT, HEIGHT, WIDTH = 6, 21, 18
FACTORS = torch.tensor([0.0, 0.3, 1.0, 1.7, 0.95, 2.5])
SHIFTS = torch.tensor([-0.5, -0.2, 0.0, 0.01, 0.3, 0.5])
BITS = torch.tensor([0, 1, 3, 4, 7, 8])
SIGMAS = torch.tensor([0.1, 0.5, 1.0, 2.0, 0.7, 1.3])
Function = Callable[..., Any]

# Name: the function, its parameters, the reference, and by how many bytes they may differ.
CASES: dict[str, tuple[Function, torch.Tensor | None, Function, int]] = {
    "brightness": (color.adjust_brightness, FACTORS, references.adjust_brightness, 1),
    "contrast": (color.adjust_contrast, FACTORS, references.adjust_contrast, 1),
    "saturation": (color.adjust_saturation, FACTORS, references.adjust_saturation, 1),
    "hue": (color.adjust_hue, SHIFTS, references.adjust_hue, 1),
    "grayscale": (color.grayscale, None, references.grayscale, 1),
    "invert": (color.invert, None, lambda p: (references.top(p) - p).astype(p.dtype), 0),
    "posterize": (color.posterize, BITS, references.posterize, 0),
    "autocontrast": (color.autocontrast, None, references.autocontrast, 1),
    "sharpness": (space.adjust_sharpness, FACTORS, references.adjust_sharpness, 1),
    "blur": (
        lambda p, s: space.gaussian_blur(p, (5, 3), s), SIGMAS,
        lambda p, s: references.gaussian_blur(p, (5, 3), s), 1,
    ),
    "wide blur": (
        lambda p, s: space.gaussian_blur(p, (1, 23), s), 9 * SIGMAS,
        lambda p, s: references.gaussian_blur(p, (1, 23), s), 1,
    ),
}  # fmt: skip


def pictures() -> torch.Tensor:
    """Photos, noise, one colour, and pictures that end in the extremes: uint8[N, 3, H, W]."""
    rng = np.random.default_rng(0)
    made = [np.asarray(photo(WIDTH, HEIGHT, seed)) for seed in range(3)]
    made += [rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)]
    made += [np.full((HEIGHT, WIDTH, 3), (10, 201, 93), np.uint8)]
    made += [rng.choice(np.array([0, 1, 254, 255], np.uint8), (HEIGHT, WIDTH, 3))]
    return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2)


def call(function: Function, pixels: torch.Tensor, parameters: torch.Tensor | None) -> torch.Tensor:
    result: torch.Tensor = function(pixels) if parameters is None else function(pixels, parameters)
    return result


def by_reference(
    reference: Function, pixels: torch.Tensor, parameters: torch.Tensor | None
) -> torch.Tensor:
    results = []
    for k, picture in enumerate(pixels.permute(0, 2, 3, 1).numpy()):
        plain = picture if picture.dtype == np.uint8 else picture.astype(np.float64)
        given = [] if parameters is None else [parameters[k].item()]
        results.append(torch.from_numpy(np.ascontiguousarray(reference(plain, *given))))
    return torch.stack(results).permute(0, 3, 1, 2)


@pytest.mark.parametrize("name", CASES)
def test_bytes(name: str) -> None:
    function, parameters, reference, tolerance = CASES[name]
    pixels = pictures()
    before = pixels.clone()
    result = call(function, pixels, parameters)
    assert result.dtype == torch.uint8 and result.shape == pixels.shape
    assert torch.equal(pixels, before)
    difference = (result.int() - by_reference(reference, pixels, parameters).int()).abs()
    assert difference.max() <= tolerance
    # A different rounding now and then, not another formula.
    assert (difference > 0).float().mean() < 0.02


@pytest.mark.parametrize("name", CASES)
def test_floats(name: str) -> None:
    function, parameters, reference, _ = CASES[name]
    pixels = pictures().to(torch.float32) / 255
    before = pixels.clone()
    result = call(function, pixels, parameters)
    assert result.dtype == torch.float32 and result.shape == pixels.shape
    assert torch.equal(pixels, before)
    expected = by_reference(reference, pixels, parameters)
    assert (result - expected).abs().max() < 2e-6


@pytest.mark.parametrize("kind", ["bytes", "floats"])
@pytest.mark.parametrize("name", CASES)
def test_a_picture_does_not_depend_on_its_batch_or_layout(name: str, kind: str) -> None:
    function, parameters, _, _ = CASES[name]
    pixels = pictures() if kind == "bytes" else pictures().to(torch.float32) / 255
    together = call(function, pixels, parameters)
    assert torch.equal(call(function, pixels.contiguous(), parameters), together)
    for k in range(COUNT):
        alone = None if parameters is None else parameters[k : k + 1]
        assert torch.equal(call(function, pixels[k : k + 1], alone)[0], together[k])


@pytest.mark.parametrize("kind", ["bytes", "floats"])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue", "grayscale"])
def test_flips_may_come_before_or_after_colours(name: str, kind: str) -> None:
    function, parameters, _, _ = CASES[name]
    pixels = pictures() if kind == "bytes" else pictures().to(torch.float32) / 255
    flipped = call(function, pixels.flip(2, 3), parameters)
    assert torch.equal(flipped, call(function, pixels, parameters).flip(2, 3))


def test_equalize_is_pillows() -> None:
    pixels = pictures()
    result = color.equalize(pixels)
    for picture, equalized in zip(pixels, result, strict=True):
        truth = ImageOps.equalize(Image.fromarray(picture.permute(1, 2, 0).numpy()))
        assert torch.equal(equalized.permute(1, 2, 0), torch.from_numpy(np.array(truth)))
        assert torch.equal(color.equalize(picture.unsqueeze(0))[0], equalized)
    floats = color.equalize(pixels.to(torch.float32) / 255)
    assert floats.dtype == torch.float32
    assert (floats * 255 - result).abs().max() < 1e-3


def test_solarize() -> None:
    thresholds = torch.tensor([0.0, 10.0, 128.0, 254.5, 255.0, 256.0])
    pixels = pictures()
    result = color.solarize(pixels, thresholds)
    assert torch.equal(result, by_reference(references.solarize, pixels, thresholds))
    floats = pixels.to(torch.float32) / 255
    result = color.solarize(floats, thresholds / 255)
    expected = by_reference(references.solarize, floats, thresholds / 255)
    assert (result - expected).abs().max() < 1e-6


def test_erase() -> None:
    boxes = torch.tensor([
        [0, 0, 0, 0], [3, 4, 5, 6], [0, 0, 18, 21], [17, 20, 1, 1], [2, 0, 0, 9], [9, 9, 9, 12],
    ])  # fmt: skip
    for pixels, value in ((pictures(), (0, 7, 255)), (pictures() / 255, (0.0, -1.5, 0.25))):
        expected = pixels.clone()
        for k, (left, top, width, height) in enumerate(boxes.tolist()):
            for channel in range(3):
                expected[k, channel, top : top + height, left : left + width] = value[channel]
        assert torch.equal(space.erase(pixels, boxes, torch.tensor(value)), expected)


def test_a_small_picture_is_not_sharpened() -> None:
    pixels = pictures()[:, :, :2]
    assert torch.equal(space.adjust_sharpness(pixels, FACTORS), pixels)


def test_affine_is_pillows() -> None:
    pixels = pictures()
    matrices = [
        (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), (1.0, 0.31, 0.155, 0.0, 1.0, 0.0),
        (1.0, 0.0, -5.0, 0.0, 1.0, 0.0), (0.8, 0.3, 2.1, -0.4, 1.1, 3.3),
        (1.0, 0.0, 30.0, 0.0, 1.0, 0.0), (-1.0, 0.0, 17.0, 0.0, -1.0, 20.0),
    ]  # fmt: skip
    result = space.affine(pixels, torch.tensor(matrices, dtype=torch.float64))
    for k, matrix in enumerate(matrices):
        truth = references.affine(pixels[k].permute(1, 2, 0).numpy(), matrix)
        assert torch.equal(result[k].permute(1, 2, 0), torch.from_numpy(truth.copy())), matrix


def test_rotations_are_pillows() -> None:
    pixels = pictures()[:1]
    for degrees in (-135.0, -9.0, 0.0, 13.5, 180.0):
        result = CHANGES["Rotate"](pixels, torch.tensor([degrees]))[0].permute(1, 2, 0)
        picture = Image.fromarray(pixels[0].permute(1, 2, 0).numpy())
        truth = torch.from_numpy(np.array(picture.rotate(degrees, Image.Resampling.NEAREST)))
        assert (result != truth).any(-1).float().mean() < 0.01  # points half-way between two


@pytest.mark.parametrize("name", ["ShearX", "ShearY", "TranslateX", "TranslateY"])
def test_shears_and_translations_by_hand(name: str) -> None:
    pixels = pictures()[:3]
    strength = torch.tensor([0.5, -0.2, 0.0]) * (1 if "Shear" in name else 9)
    result = CHANGES[name](pixels, strength)
    for k in range(3):
        for y in range(HEIGHT):
            for x in range(WIDTH):
                amount = strength[k].item()
                from_x, from_y = float(x), float(y)
                if name == "ShearX":
                    from_x += amount * (y + 0.5)
                elif name == "ShearY":
                    from_y += amount * (x + 0.5)
                elif name == "TranslateX":
                    from_x -= int(amount)
                else:
                    from_y -= int(amount)
                i, j = int(np.floor(from_x + 0.5)), int(np.floor(from_y + 0.5))
                if abs(from_x + 0.5 - round(from_x + 0.5)) < 1e-6 and name == "ShearX":
                    continue  # half-way between two
                if abs(from_y + 0.5 - round(from_y + 0.5)) < 1e-6 and name == "ShearY":
                    continue
                inside = 0 <= i < WIDTH and 0 <= j < HEIGHT
                expected = pixels[k, :, j, i] if inside else torch.zeros(3, dtype=torch.uint8)
                assert torch.equal(result[k, :, y, x], expected)


def functional() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torchvision's own imports
        reason = "torchvision is not installed: its functions are compared where it is"
        return pytest.importorskip("torchvision.transforms.v2.functional", reason=reason)


THEIRS: dict[str, Function] = {
    "brightness": lambda f, p, x: f.adjust_brightness(p, x),
    "contrast": lambda f, p, x: f.adjust_contrast(p, x),
    "saturation": lambda f, p, x: f.adjust_saturation(p, x),
    "hue": lambda f, p, x: f.adjust_hue(p, x),
    "grayscale": lambda f, p, x: f.rgb_to_grayscale(p, 3),
    "invert": lambda f, p, x: f.invert(p),
    "posterize": lambda f, p, x: f.posterize(p, int(x)),
    "autocontrast": lambda f, p, x: f.autocontrast(p),
    "sharpness": lambda f, p, x: f.adjust_sharpness(p, x),
    "blur": lambda f, p, x: f.gaussian_blur(p, [5, 3], [x, x]),
    "wide blur": lambda f, p, x: f.gaussian_blur(p, [1, 23], [x, x]),
}


@pytest.mark.parametrize("kind", ["bytes", "floats"])
@pytest.mark.parametrize("name", CASES)
def test_equal_to_torchvision(name: str, kind: str) -> None:
    theirs = functional()
    function, parameters, _, _ = CASES[name]
    pixels = pictures() if kind == "bytes" else pictures().to(torch.float32) / 255
    result = call(function, pixels, parameters)
    for k in range(COUNT):
        given = 0.0 if parameters is None else parameters[k].item()
        expected = THEIRS[name](theirs, pixels[k].contiguous(), given)
        difference = (result[k].double() - expected.double()).abs().max()
        assert difference <= (1 if kind == "bytes" else 2e-6)


@pytest.mark.parametrize("name", ["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"])
def test_moves_equal_to_torchvision(name: str) -> None:
    theirs = functional()
    strength = torch.tensor([0.3, -0.1, 0.0, 0.77, 0.5, -0.9]) * (1 if "Shear" in name else 10)
    result = CHANGES[name](pictures(), strength)
    for k, amount in enumerate(strength.tolist()):
        picture = pictures()[k].contiguous()
        angle = float(np.degrees(np.arctan(amount)))
        arguments: dict[str, Any] = {"angle": 0.0, "translate": [0, 0], "scale": 1.0}
        if name == "Rotate":
            expected = theirs.rotate(picture, amount)
        elif name == "ShearX":
            expected = theirs.affine(picture, shear=[angle, 0.0], center=[0, 0], **arguments)
        elif name == "ShearY":
            expected = theirs.affine(picture, shear=[0.0, angle], center=[0, 0], **arguments)
        else:
            moved = [int(amount), 0] if name == "TranslateX" else [0, int(amount)]
            arguments["translate"] = moved
            expected = theirs.affine(picture, shear=[0.0, 0.0], **arguments)
        # Points half-way between two pixels are torch's rounding of a float.
        assert (result[k] != expected).any(0).float().mean() < 0.02
