"""What the tests of late pictures share: made files, chains, and Pillow's own answers."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import Image

from slipstream.run.pictures.install import install
from tests.pictures import jpeg, turned_jpeg

FILES = {
    "4:4:4": jpeg(97, 61, 1, subsampling="4:4:4"),
    "4:2:2": jpeg(90, 61, 2, subsampling="4:2:2"),
    "4:2:0": jpeg(77, 130, 3, subsampling="4:2:0"),
    "restarts": jpeg(64, 48, 4, restart_marker_blocks=3),
    "progressive": jpeg(64, 64, 5, progressive=True),
    "gray": jpeg(53, 40, 6, mode="L"),
    "cmyk": jpeg(60, 45, 7, mode="CMYK"),
    "one pixel": jpeg(1, 1, 8),
    "one pixel, gray": jpeg(1, 1, 8, mode="L"),
    "narrow": jpeg(3, 130, 9),
    "turned": turned_jpeg(6),
    "optimized": jpeg(101, 67, 10, optimize=True, quality=60),
    "keeps RGB": jpeg(33, 35, 11, keep_rgb=True),
    "trailing bytes": jpeg(40, 30, 12) + b"and more",
}
LATE = [name for name in FILES if name not in ("progressive", "cmyk")]

Step = Callable[[Image.Image], Any]


@contextmanager
def late_pictures() -> Iterator[None]:
    undo = install()
    try:
        yield
    finally:
        undo()


def open_bytes(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def seen(run: Callable[[], Any]) -> Any:
    """What a call gives, as something to compare: pixels and all that a picture shows, or the
    error.
    """
    try:
        value = run()
    except Exception as error:
        return type(error), str(error)
    return shown(value)


def shown(value: Any) -> Any:
    if isinstance(value, Image.Image):
        shape = value.mode, value.size, sorted(map(str, value.info)), value.format
        return *shape, value.__class__, np.asarray(value).tobytes()
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.flags.writeable, value.strides, value.tobytes()
    return value


def both(run: Callable[[], Any]) -> tuple[Any, Any]:
    """What a call gives with Pillow alone, and with late pictures."""
    alone = seen(run)
    with late_pictures():
        return alone, seen(run)
