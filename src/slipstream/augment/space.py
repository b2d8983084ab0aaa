"""Functions of a batch that look at a pixel's place or at its neighbours, each picture with
parameters of its own. As in `color`, results depend neither on the device nor on the batch: there
is no convolution here, whose arithmetic is the library's choice (TF32 on GPUs), but sums of shifted
pictures, and places are whole numbers.
"""

import numpy as np
import torch
from torch.nn.functional import pad

from slipstream.augment.levels import each, is_bytes, settle

_ONE = 1 << 32


def gaussian_blur(
    pixels: torch.Tensor, kernel_size: tuple[int, int], sigma: torch.Tensor
) -> torch.Tensor:
    """Blurred by Gaussians of `kernel_size` (width, height) taps, mirrored at the edges.

    >>> gaussian_blur(torch.eye(3).expand(1, 3, 3, 3), (3, 3), torch.tensor([1e-3]))[0, 0].tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    across, down = kernel_size
    values = pad(
        pixels.to(torch.float32), (across // 2, across // 2, down // 2, down // 2), mode="reflect"
    )
    for axis, taps in ((3, across), (2, down)):
        values = _weighted(values, axis, _gaussian(taps, sigma).to(pixels.device))
    return values.round_().to(torch.uint8) if is_bytes(pixels) else values


def adjust_sharpness(pixels: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Blended with a 3 x 3 blur of itself: 0 is the blur, 1 the picture; its edge stays."""
    height, width = pixels.shape[2:]
    if height <= 2 or width <= 2:
        return pixels
    values = pixels.to(torch.float32, copy=True)
    inside = values[:, :, 1:-1, 1:-1]
    blurred = inside * 4.0
    for y in range(3):
        for x in range(3):
            blurred = blurred + values[:, :, y : y + height - 2, x : x + width - 2]
    blurred = blurred / torch.full((1, 1, 1, 1), 13.0, device=pixels.device)
    if is_bytes(pixels):
        blurred.round_()
    inside.copy_(inside + (blurred - inside) * (1.0 - each(factor, pixels)))
    return settle(values, pixels)


def erase(pixels: torch.Tensor, boxes: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """`value` [3] wherever `boxes` [N, 4] (left, top, width, height) are; none where they are
    empty.
    """
    height, width = pixels.shape[2:]
    left, top, across, down = boxes.to(pixels.device, non_blocking=True).view(-1, 4, 1, 1).unbind(1)
    columns = torch.arange(width, device=pixels.device).view(1, 1, -1)
    rows = torch.arange(height, device=pixels.device).view(1, -1, 1)
    inside = (columns >= left) & (columns < left + across)
    inside = inside & (rows >= top) & (rows < top + down)
    filler = value.to(pixels.device, pixels.dtype, non_blocking=True).view(1, 3, 1, 1)
    return torch.where(inside.unsqueeze(1), filler, pixels)


def affine(pixels: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    """Pixel (x, y) of the result is the source's nearest to (a x + b y + c, d x + e y + f), with
    `matrices` float64[N, 6] of a to f; black where that lies outside.
    """
    count, channels, height, width = pixels.shape
    whole = fixed_point(matrices).to(pixels.device, non_blocking=True)
    a, b, c, d, e, f = whole.view(count, 6, 1, 1).unbind(1)
    x = torch.arange(width, device=pixels.device).view(1, 1, -1)
    y = torch.arange(height, device=pixels.device).view(1, -1, 1)
    half = _ONE // 2
    columns, rows = ((u * x + v * y + w + half) >> 32 for u, v, w in ((a, b, c), (d, e, f)))
    outside = (columns < 0) | (columns >= width) | (rows < 0) | (rows >= height)
    places = rows.clamp_(0, height - 1) * width + columns.clamp_(0, width - 1)
    places = places.view(count, 1, -1).expand(-1, channels, -1)
    found = pixels.reshape(count, channels, -1).gather(2, places).reshape(pixels.shape)
    return found.masked_fill_(outside.unsqueeze(1), 0)


def fixed_point(numbers: torch.Tensor) -> torch.Tensor:
    """In units of 2^-32, int64."""
    return (numbers * float(_ONE)).round().to(torch.int64)


def _gaussian(taps: int, sigma: torch.Tensor) -> torch.Tensor:
    away = np.arange(taps) - (taps - 1) / 2
    weights = np.exp(-0.5 * (away / sigma.cpu().numpy().astype(np.float64)[:, None]) ** 2)
    return torch.from_numpy((weights / weights.sum(1, keepdims=True)).astype(np.float32))


def _weighted(values: torch.Tensor, axis: int, weights: torch.Tensor) -> torch.Tensor:
    taps = weights.shape[1]
    length = values.shape[axis] - taps + 1
    own = weights.view(-1, taps, 1, 1, 1)
    total = values.narrow(axis, 0, length) * own[:, 0]
    for tap in range(1, taps):
        total = total + values.narrow(axis, tap, length) * own[:, tap]
    return total
