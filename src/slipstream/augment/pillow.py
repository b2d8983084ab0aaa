"""One sample's window cut by Pillow: for pictures the engine cannot do, and as the tests' truth."""

from PIL import Image

from slipstream.augment.geometry import Window
from slipstream.augment.steps import LEFT_RIGHT, TOP_BOTTOM


def apply(window: Window, picture: Image.Image) -> Image.Image:
    """The part of an RGB `picture` that `window` describes, with black where it reaches outside.

    >>> window = Window((2, 0, 4, 4), (4, 4, -1, 0), (6, 4), 0, "bilinear")
    >>> apply(window, Image.new("RGB", (8, 8), "white")).getpixel((0, 0))
    (0, 0, 0)
    """
    x, y, width, height = window.box
    picture = _cut(picture, x, y, width, height)
    full_width, full_height, left, top = window.resized
    if picture.size != (full_width, full_height):
        resample = Image.Resampling[window.filter.upper()]
        picture = picture.resize((full_width, full_height), resample)
    picture = _cut(picture, left, top, *window.size)
    if window.flips & LEFT_RIGHT:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if window.flips & TOP_BOTTOM:
        picture = picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    return picture


def _cut(picture: Image.Image, left: int, top: int, width: int, height: int) -> Image.Image:
    if (left, top, width, height) == (0, 0, *picture.size):
        return picture
    return picture.crop((left, top, left + width, top + height))
