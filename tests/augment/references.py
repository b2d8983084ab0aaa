"""One picture at a time, in plain NumPy and Python: what the functions on batches must give."""

import colorsys
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[Any]  # [H, W, 3], uint8 or float64 from 0 to 1
Floats = npt.NDArray[np.float64]


def top(pixels: Pixels) -> float:
    return 255.0 if pixels.dtype == np.uint8 else 1.0


def settle(values: Floats, pixels: Pixels) -> Pixels:
    """Rounded down, as a conversion to bytes does."""
    return np.clip(values, 0, top(pixels)).astype(pixels.dtype)


def luma(pixels: Pixels) -> Floats:
    return pixels.astype(np.float64) @ [0.2989, 0.587, 0.114]


def whole_luma(pixels: Pixels) -> Floats:
    return np.floor(luma(pixels)) if pixels.dtype == np.uint8 else luma(pixels)


def blend(pixels: Pixels, other: Any, factor: float) -> Pixels:
    return settle(factor * pixels.astype(np.float64) + (1 - factor) * other, pixels)


def adjust_brightness(pixels: Pixels, factor: float) -> Pixels:
    return blend(pixels, 0.0, factor)


def adjust_contrast(pixels: Pixels, factor: float) -> Pixels:
    return blend(pixels, whole_luma(pixels).mean(), factor)


def adjust_saturation(pixels: Pixels, factor: float) -> Pixels:
    return blend(pixels, whole_luma(pixels)[..., None], factor)


def adjust_hue(pixels: Pixels, shift: float) -> Pixels:
    result = np.empty(pixels.shape)
    for place in np.ndindex(*pixels.shape[:2]):
        hue, saturation, value = colorsys.rgb_to_hsv(*(pixels[place] / top(pixels)))
        result[place] = colorsys.hsv_to_rgb((hue + shift) % 1.0, saturation, value)
    if pixels.dtype != np.uint8:
        return result
    return np.floor(result * 255.999 + 1e-9).clip(0, 255).astype(np.uint8)


def grayscale(pixels: Pixels) -> Pixels:
    return np.repeat(settle(luma(pixels), pixels)[..., None], 3, axis=2)


def posterize(pixels: Pixels, bits: float) -> Pixels:
    if pixels.dtype == np.uint8:
        return pixels // 2 ** (8 - int(bits)) * 2 ** (8 - int(bits)) if bits else pixels * 0
    levels = 2.0**bits
    return np.clip(np.floor(pixels * levels), 0, levels - 1) / levels


def solarize(pixels: Pixels, threshold: float) -> Pixels:
    return np.where(pixels >= threshold, top(pixels) - pixels, pixels).astype(pixels.dtype)


def autocontrast(pixels: Pixels) -> Pixels:
    result = pixels.copy()
    for channel in range(3):
        plane = pixels[..., channel].astype(np.float64)
        low, high = plane.min(), plane.max()
        if high > low:
            stretched = (plane - low) * (top(pixels) / (high - low))
            result[..., channel] = settle(stretched, pixels)
    return result


def gaussian_blur(pixels: Pixels, kernel_size: tuple[int, int], sigma: float) -> Pixels:
    across, down = kernel_size
    height, width = pixels.shape[:2]
    taps = [
        (x, y, math.exp(-(x * x + y * y) / (2 * sigma * sigma)))
        for y in range(-(down // 2), down // 2 + 1)
        for x in range(-(across // 2), across // 2 + 1)
    ]
    total, result = sum(weight for _, _, weight in taps), np.zeros(pixels.shape)
    for x, y, weight in taps:
        columns = [mirrored(k + x, width) for k in range(width)]
        rows = [mirrored(k + y, height) for k in range(height)]
        result += pixels[rows][:, columns].astype(np.float64) * (weight / total)
    return np.rint(result).astype(np.uint8) if pixels.dtype == np.uint8 else result


def mirrored(k: int, length: int) -> int:
    k = abs(k)
    return 2 * (length - 1) - k if k >= length else k


def adjust_sharpness(pixels: Pixels, factor: float) -> Pixels:
    values = pixels.astype(np.float64)
    result = values.copy()
    for y in range(1, len(values) - 1):
        for x in range(1, values.shape[1] - 1):
            near = values[y - 1 : y + 2, x - 1 : x + 2].sum((0, 1)) + 4 * values[y, x]
            soft = np.rint(near / 13) if pixels.dtype == np.uint8 else near / 13
            result[y, x] = factor * values[y, x] + (1 - factor) * soft
    return settle(result, pixels)


def affine(pixels: Pixels, matrix: tuple[float, ...]) -> Pixels:
    """By Pillow, which counts from a pixel's corner where we count from its middle."""
    a, b, c, d, e, f = matrix
    moved = (a, b, c + 0.5 - (a + b) / 2, d, e, f + 0.5 - (d + e) / 2)
    picture = Image.fromarray(pixels)
    return np.asarray(
        picture.transform(picture.size, Image.Transform.AFFINE, moved, Image.Resampling.NEAREST)
    )
