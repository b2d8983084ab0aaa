"""Other channel counts that cost as many operations."""

import math

_MOST_FLOPS = 1.05
_FAR = {8: 1.5, 4: 1.5, 2: 1.5, 1: 2.0}  # from the wanted ratio, by step


def same_product(product: float, ratio: float = 1.0) -> tuple[int, int] | None:
    """Two channel counts whose product is `product` or up to 5 % more, about `ratio` apart, as
    multiples of 8 where there are such. Never less: fewer operations would be no fair comparison.
    None where there are none.

    >>> same_product(64 * 256), same_product(256 * 256 / 4), same_product(512 * 1024 / 32, 1 / 2)
    ((128, 128), (128, 128), (88, 192))
    """
    middle = math.sqrt(product * ratio)
    for step, far in _FAR.items():
        pairs = []
        low, high = math.floor(middle / 2 / step), math.ceil(middle * 2 / step)
        for into in range(max(low, 1) * step, high * step + 1, step):
            out = math.ceil(product / into / step) * step
            off = max(into / out / ratio, ratio * out / into)
            if out * into <= product * _MOST_FLOPS and off <= far:
                pairs.append((round(off, 3), into * out, into, out))
        if pairs:
            return min(pairs)[2:]
    return None


def next_multiple(channels: int, up: bool) -> int:
    """Of 8, above or below; at least 8.

    >>> next_multiple(13, up=True), next_multiple(13, up=False), next_multiple(3, up=False)
    (16, 8, 8)
    """
    return max(8, (channels + 7 if up else channels) // 8 * 8)
