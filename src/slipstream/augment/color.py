"""Colours of a batch, each picture with parameters of its own: what torchvision's functions of the
same names do to one tensor.

Pictures are [N, 3, H, W], uint8 or float32 between 0 and 1, on any device; parameters are [N].
Every operation here is one that processors and GPUs round alike (a product, a sum, a quotient of
tensors), and sums over a picture are sums of whole numbers, whose order does not matter. So a
picture's result does not depend on the device, nor on the batch that it is in.
"""

import torch

from slipstream.augment.levels import as_bytes, as_floats, each, is_bytes, most, settle

_LUMA = (0.2989, 0.587, 0.114)
_FINE = 2.0**24


def adjust_brightness(pixels: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Every value times the factor.

    >>> grey = torch.full((1, 3, 1, 1), 100, dtype=torch.uint8)
    >>> adjust_brightness(grey, torch.tensor([1.5])).flatten().tolist()
    [150, 150, 150]
    """
    return settle(pixels * each(factor, pixels), pixels)


def adjust_contrast(pixels: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Farther from the picture's mean grey, or nearer to it."""
    return _blend(pixels, _mean_grey(pixels), factor)


def adjust_saturation(pixels: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Farther from the pixel's own grey, or nearer to it."""
    grey = _luma(pixels)
    return _blend(pixels, grey.floor_() if is_bytes(pixels) else grey, factor)


def adjust_hue(pixels: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """The hue turned by `shift` of a whole turn, from -0.5 to 0.5.

    >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> adjust_hue(red, torch.tensor([1 / 3])).flatten().tolist()
    [0.0, 1.0, 0.0]
    """
    values = as_floats(pixels)
    red, green, blue = values.unbind(1)
    value, least = values.amax(1), values.amin(1)
    spread = value - least
    divisor = torch.where(spread == 0, torch.ones_like(spread), spread)
    # Sixths of a turn. Of channels that are equal and largest the first counts.
    sixths = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, (blue - red) / divisor + 2.0, (red - green) / divisor + 4.0),
    )
    sixths = sixths + each(shift, pixels)[:, 0] * 6.0
    channels = []
    for corner in (5.0, 3.0, 1.0):
        away = (sixths + corner).remainder(6.0)
        channels.append(value - spread * torch.minimum(away, 4.0 - away).clamp_(0.0, 1.0))
    turned = torch.stack(channels, 1).clamp_(0.0, 1.0)
    return as_bytes(turned) if is_bytes(pixels) else turned


def grayscale(pixels: torch.Tensor) -> torch.Tensor:
    """The pixel's grey in all three channels."""
    return settle(_luma(pixels), pixels).expand_as(pixels)


def invert(pixels: torch.Tensor) -> torch.Tensor:
    """The negative."""
    return most(pixels) - pixels


def posterize(pixels: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """The upper `bits` of every value, 0 to 8."""
    if is_bytes(pixels):
        masks = 256 - torch.bitwise_left_shift(torch.ones_like(bits), 8 - bits)
        return pixels & masks.to(torch.uint8).to(pixels.device).view(-1, 1, 1, 1)
    levels = each(torch.bitwise_left_shift(torch.ones_like(bits), bits), pixels)
    return torch.minimum((pixels * levels).floor_().clamp_(min=0.0), levels - 1.0) / levels


def solarize(pixels: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    """The negative of what is not below the threshold, which is in the units of the pixels."""
    return torch.where(pixels >= each(threshold, pixels), invert(pixels), pixels)


def autocontrast(pixels: torch.Tensor) -> torch.Tensor:
    """Each channel stretched over the whole range."""
    low = pixels.amin((2, 3), keepdim=True).to(torch.float32)
    high = pixels.amax((2, 3), keepdim=True).to(torch.float32)
    flat = high == low
    step = torch.where(flat, torch.ones_like(low), (high - low) * (1.0 / most(pixels)))
    return settle((pixels - torch.where(flat, torch.zeros_like(low), low)) / step, pixels)


def equalize(pixels: torch.Tensor) -> torch.Tensor:
    """Each channel's values spread such that all are about as frequent."""
    if not is_bytes(pixels):
        return as_floats(equalize(as_bytes(pixels)))
    count, channels, height, width = pixels.shape
    values = pixels.reshape(count * channels, height * width).to(torch.int64)
    rows = torch.arange(len(values), device=pixels.device).view(-1, 1)
    # In one dimension: there torch.use_deterministic_algorithms allows it on GPUs.
    places = (values + 256 * rows).reshape(-1)
    counts = torch.zeros(256 * len(values), dtype=torch.int64, device=pixels.device)
    counts = counts.scatter_add_(0, places, torch.ones_like(places)).view(-1, 256)
    last = counts.gather(1, values.amax(1, keepdim=True))
    step = torch.div(height * width - last, 255, rounding_mode="floor")
    below = counts.cumsum(1) - counts
    half = torch.div(step, 2, rounding_mode="floor")
    table = torch.div(below + half, step.clamp(min=1), rounding_mode="floor").clamp_(0, 255)
    table = torch.where(step == 0, torch.arange(256, device=pixels.device), table)
    return table.gather(1, values).to(torch.uint8).reshape(pixels.shape)


def _luma(pixels: torch.Tensor) -> torch.Tensor:
    red, green, blue = (pixels[:, c : c + 1] * weight for c, weight in enumerate(_LUMA))
    return red.add_(green).add_(blue)


def _mean_grey(pixels: torch.Tensor) -> torch.Tensor:
    grey = _luma(pixels)
    fine = 1.0 if is_bytes(pixels) else _FINE
    whole = grey.floor_() if is_bytes(pixels) else (grey * fine).round_()
    total = whole.sum((1, 2, 3), keepdim=True, dtype=torch.float64)
    count = torch.full_like(total, fine * grey.shape[2] * grey.shape[3])
    return (total / count).to(torch.float32)


def _blend(pixels: torch.Tensor, other: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    ratio = each(factor, pixels)
    return settle(pixels * ratio + other * (1.0 - ratio), pixels)
