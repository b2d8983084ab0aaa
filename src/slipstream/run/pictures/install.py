"""Puts late pictures in the place of those that Pillow opens."""

import mmap
from collections.abc import Callable
from typing import Any

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from slipstream.patches import Patches
from slipstream.run.fix import Undo
from slipstream.run.pictures import counts, fetching, tensors, workers
from slipstream.run.pictures.headers import Header, open_alike, remember
from slipstream.run.pictures.lazy import LateJpegFile


def _quietly(error: Exception) -> None:
    """Nobody is told."""


def install(*, in_worker: bool = False, give_up: Callable[[Exception], None] = _quietly) -> Undo:
    """From now on `PIL.Image.open` gives pictures that the engine decodes late, where it can, in
    this process and in the workers of its DataLoaders. Twice is once.

    If something goes wrong in here, `give_up` is told, and Pillow does it all from then on.
    """
    if hasattr(Image.open, "_of_pillow"):
        return lambda: None
    is_on = True
    # Forked workers go on when this process has left: they see that it has.
    is_left = mmap.mmap(-1, 1)
    if not in_worker:
        counts.start()

    def wrap(original: Any) -> Any:
        def open(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_on
            if not is_on or is_left[0]:
                return original(*args, **kwargs)
            picture = header = None
            try:
                tensors.look()
                if len(args) == 1 and not kwargs:
                    picture, header = open_alike(args[0])
            except Exception as error:
                is_on = False
                give_up(error)
            if picture is None:
                picture = original(*args, **kwargs)
            try:
                return _late(picture, header)
            except Exception as error:
                is_on = False
                give_up(error)
                return picture

        open._of_pillow = original  # type: ignore[attr-defined]
        return open

    patches = Patches()
    patches.replace(Image, "open", wrap)
    undo_batches = fetching.follow()
    put_back = None if in_worker else workers.follow()

    def undo() -> None:
        is_left[0] = 1
        patches.undo()
        tensors.undo()
        undo_batches()
        if put_back is not None:
            put_back()

    return undo


def _late(picture: Any, header: Header | None) -> Any:
    """The picture, late if it can be. Progressive files are not: they have to be decoded whole,
    which Pillow does as fast.
    """
    is_plain = type(picture) is JpegImageFile and picture.mode in ("RGB", "L")
    if not is_plain or "progressive" in picture.info:
        counts.add(by_engine=False)
        return picture
    if header is not None:
        remember(header, picture)
    picture.__class__ = LateJpegFile
    return picture
