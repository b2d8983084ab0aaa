"""Arguments of `crop` and `resize`, as far as the engine takes them."""

from typing import Any

from PIL import Image

_ENGINE_FILTERS = range(5)  # Pillow's numbers: nearest, lanczos, bilinear, bicubic, box
_BOX_SIDES = 4
_MOST_PIXELS = 1 << 28


def sides_of(box: Any) -> tuple[int, int, int, int] | None:
    """Of a box for `crop`, rounded as there; None for what Pillow is to look at."""
    if not isinstance(box, (tuple, list)) or len(box) != _BOX_SIDES:
        return None
    left, top, right, bottom = box
    if type(left) is int and type(top) is int and type(right) is int and type(bottom) is int:
        return left, top, right, bottom
    try:
        if right < left or bottom < top:
            return None
        left, top, right, bottom = map(int, map(round, box))
    except Exception:
        return None
    return left, top, right, bottom


def filter_of(resample: Any) -> int | None:
    """The engine's number, which is Pillow's; None for what it has not."""
    if resample is None:
        return int(Image.Resampling.BICUBIC)
    number = int(resample) if isinstance(resample, int) else -1
    return number if number in _ENGINE_FILTERS else None


def size_of(size: Any) -> tuple[int, int] | None:
    """Of a size for `resize`; None for what Pillow is to look at."""
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        return None
    width, height = size
    if type(width) is not int or type(height) is not int or width < 1 or height < 1:
        return None
    return (width, height) if width * height <= _MOST_PIXELS else None
