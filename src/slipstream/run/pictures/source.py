"""The bytes of a JPEG file that the engine decodes, as often as pixels of it are asked for."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from slipstream import _native
from slipstream.run.pictures.window import MIRROR, UPSIDE_DOWN, Window
from slipstream.store.images import pass_order

Pixels = npt.NDArray[np.uint8]
PASS_ORDER = pass_order()
_FIRST = np.zeros(1, dtype=np.uint32)
_START = np.zeros(1, dtype=np.uint64)
_A_FILE = np.zeros(1, dtype=np.uint8)
_FLIPS = tuple(np.array([flips], dtype=np.uint8) for flips in range(4))


class _Pixels(threading.local):
    are_made = True


_pixels = _Pixels()


@contextmanager
def without_pixels() -> Iterator[None]:
    """Meanwhile pictures are black, in this thread: for who wants to know what else samples do."""
    before, _pixels.are_made = _pixels.are_made, False
    try:
        yield
    finally:
        _pixels.are_made = before


class Source:
    """A file in memory. Thread-safe: at worst two threads do the same work.

    The first window that is asked for is decoded alone, for most pictures are used once. With the
    second the whole picture is, and kept.
    """

    __slots__ = ("_by_pillow", "_is_used", "_whole", "data", "size")

    def __init__(self, data: bytes, size: tuple[int, int]) -> None:
        self.data, self.size = data, size
        self._is_used = False
        self._whole: Pixels | None = None
        self._by_pillow: Image.Image | None = None

    @staticmethod
    def of(data: bytes, size: tuple[int, int]) -> "Source | None":
        """None for what the engine leaves to Pillow, and for every file at which Pillow's decoder
        would raise: its header, its tables and the whole way to its end marker are looked at.
        """
        if not _pixels.are_made:
            return Source(data, size)
        corner = Window(size[0] - 1, 0, 1, 1, None, 0, 0, (1, 1), 0, 0)
        return None if _decode(data, corner) is None else Source(data, size)

    def pixels(self, window: Window) -> Pixels:
        """uint8[height, width, 3], equal to Pillow's, to be read only. Raises what Pillow does."""
        if not _pixels.are_made:
            return np.zeros((window.size[1], window.size[0], 3), dtype=np.uint8)
        if self._by_pillow is None:
            try:
                found = self._by_engine(window)
            except Exception:  # whatever it is, Pillow can do it
                found = None
            if found is not None:
                return found
        return _window_by_pillow(self._opened_by_pillow(), window)

    def use_first(self) -> bool:
        """Whether nothing was asked for yet; from now on something was."""
        was_used, self._is_used = self._is_used or self._by_pillow is not None, True
        return not was_used

    def _by_engine(self, window: Window) -> Pixels | None:
        if self.use_first():
            return _decode(self.data, window)
        if self._whole is None:
            self._whole = _decode(self.data, Window.whole(*self.size))
        return None if self._whole is None else _window_of(self._whole, window)

    def _opened_by_pillow(self) -> Image.Image:
        """Damaged pixels, at which Pillow makes up others."""
        if self._by_pillow is None:
            self._by_pillow = JpegImageFile(io.BytesIO(self.data)).convert("RGB")
        return self._by_pillow


def _decode(data: bytes, window: Window) -> Pixels | None:
    """None unless the engine is sure."""
    width, height = window.size
    out = np.empty((1, height, width, 3), dtype=np.uint8)
    full = window.full
    status = _native.decode_batch(
        [data], _FIRST, _START, np.array([len(data)], dtype=np.uint64), _A_FILE, None,
        np.array([window[:4]], dtype=np.int32), _FLIPS[window.flips],
        None if full is None else np.array([(*full, window.left, window.top)], dtype=np.int32),
        out, window.filter, PASS_ORDER, 1,
    )  # fmt: skip
    pixels: Pixels = out[0]
    return pixels if status[0] == _native.STATUS_OK else None


def _window_of(whole: Pixels, window: Window) -> Pixels:
    x, y, width, height = window[:4]
    part = whole[y : y + height, x : x + width]
    if window.full is not None:
        source, part = part, np.empty((window.full[1], window.full[0], 3), dtype=np.uint8)
        _native.resize(np.ascontiguousarray(source), part, window.filter, PASS_ORDER)
        width, height = window.size
        part = part[window.top : window.top + height, window.left : window.left + width]
    if window.flips & MIRROR:
        part = part[:, ::-1]
    if window.flips & UPSIDE_DOWN:
        part = part[::-1]
    return np.ascontiguousarray(part)


def _window_by_pillow(picture: Image.Image, window: Window) -> Pixels:
    x, y, width, height = window[:4]
    picture = picture.crop((x, y, x + width, y + height))
    if window.full is not None:
        picture = picture.resize(window.full, window.filter)
    width, height = window.size
    left, top = window.left, window.top
    picture = picture.crop((left, top, left + width, top + height))
    pixels: Any = np.array(picture)
    if window.flips & MIRROR:
        pixels = pixels[:, ::-1]
    if window.flips & UPSIDE_DOWN:
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
