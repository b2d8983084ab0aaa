"""Puts late pictures in the place of those that Pillow opens."""

import functools
from typing import Any

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from slipstream.run.fix import Undo
from slipstream.run.pictures import counts, tensors, workers
from slipstream.run.pictures.headers import open_alike, remember
from slipstream.run.pictures.lazy import LateJpegFile


def install(*, in_worker: bool = False) -> Undo:
    """From now on `PIL.Image.open` gives pictures that the engine decodes late, where it can, in
    this process and in the workers of its DataLoaders. Twice is once.
    """
    if hasattr(Image.open, "_of_pillow"):
        return lambda: None
    original = Image.open
    if not in_worker:
        counts.start()

    @functools.wraps(original)
    def open(*args: Any, **kwargs: Any) -> Any:
        tensors.look()
        picture = header = None
        if len(args) == 1 and not kwargs:
            picture, header = open_alike(args[0])
        if picture is None:
            picture = original(*args, **kwargs)
            if type(picture) is not JpegImageFile or not _may_be_late(picture):
                counts.add(by_engine=False)
                return picture
            if header is not None:
                remember(header, picture)
        picture.__class__ = LateJpegFile
        return picture

    open._of_pillow = original  # type: ignore[attr-defined]
    Image.open = open
    put_back = workers.follow() if not in_worker else None

    def undo() -> None:
        if Image.open is open:
            Image.open = original
        tensors.undo()
        if put_back is not None:
            put_back()

    return undo


def _may_be_late(picture: Any) -> bool:
    """Progressive files have to be decoded whole, which Pillow does as fast."""
    return picture.mode in ("RGB", "L") and "progressive" not in picture.info
