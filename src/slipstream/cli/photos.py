"""Photo-like JPEGs: noise with the spectrum of natural pictures, and edges."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

_SUBSAMPLINGS = ("4:4:4", "4:2:0", "4:2:2")
_WEIGHTS = (0.6, 0.3, 0.1)


def make_photo(width: int, height: int, random: np.random.Generator) -> Image.Image:
    """An RGB picture that compresses about as well as a photo does.

    >>> make_photo(64, 48, np.random.default_rng(0)).size
    (64, 48)
    """
    gray, tint = _pink_noise(width, height, random), _pink_noise(width, height, random)
    layers = [gray + share * tint for share in random.uniform(-0.5, 0.5, 3)]
    contrast, light = random.uniform(35, 60), random.uniform(90, 150)
    pixels = np.clip(np.stack(layers, axis=-1) * contrast + light, 0, 255).astype(np.uint8)
    picture = Image.fromarray(pixels)
    draw = ImageDraw.Draw(picture, "RGBA")
    for _ in range(int(random.integers(3, 9))):
        corners = [(random.integers(0, width), random.integers(0, height)) for _ in range(4)]
        colour = tuple(int(c) for c in random.integers(0, 256, 3))
        draw.polygon([(int(x), int(y)) for x, y in corners], fill=(*colour, 140))
    grain = random.normal(0, 3.0, (height, width, 1))
    grainy = np.asarray(picture).astype(np.float64) + grain
    return Image.fromarray(np.clip(grainy, 0, 255).astype(np.uint8))


def write_photos(
    folder: Path, count: int, *, seed: int = 0, tell: Callable[[int], object] = int
) -> None:
    """`count` JPEGs in four class folders: about 500 x 375, quality 85 to 95, mixed subsampling.
    `tell` is told how many there are, after each.
    """
    random = np.random.default_rng(seed)
    for number in range(count):
        place = folder / f"class{number % 4}"
        place.mkdir(parents=True, exist_ok=True)
        width, height = int(random.integers(420, 580)), int(random.integers(320, 440))
        if random.random() < 0.25:
            width, height = height, width
        picture = make_photo(width, height, random)
        picture.save(
            place / f"{number:05d}.jpg",
            quality=int(random.integers(85, 96)),
            subsampling=str(random.choice(_SUBSAMPLINGS, p=_WEIGHTS)),
        )
        tell(number + 1)


def _pink_noise(width: int, height: int, random: np.random.Generator) -> npt.NDArray[Any]:
    """Noise whose amplitude falls with the frequency; mean 0, deviation 1."""
    # Cut from a frame whose sides have small factors: the transform is much faster there.
    frame = (-(-height // 32) * 32, -(-width // 32) * 32)
    frequency = np.hypot(np.fft.fftfreq(frame[0])[:, None], np.fft.rfftfreq(frame[1])[None, :])
    frequency[0, 0] = np.inf
    phase = random.normal(size=frequency.shape) + 1j * random.normal(size=frequency.shape)
    noise = np.fft.irfft2(phase / frequency, s=frame)[:height, :width]
    deviation = float(noise.std())
    return noise / deviation if deviation > 0 else noise
