"""Pictures whose pixels are made when somebody looks at them.

Both classes are what Pillow's own classes are, and say so: `isinstance`, `__class__`, `repr` and
pickle show `PIL.Image.Image` and `JpegImageFile`. Crops, one resize, flips and `convert("RGB")`
are noted down; arrays and bytes come from the engine. Everything else finds the pixels in the
place where Pillow keeps them, and from then on the object *is* one of Pillow's.
"""

import io
import os
import weakref
from _io import FileIO  # io's is another in trials
from typing import Any

import numpy as np
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from slipstream.run.pictures import counts
from slipstream.run.pictures.arguments import filter_of, sides_of, size_of
from slipstream.run.pictures.headers import is_harmless
from slipstream.run.pictures.source import Pixels, Source
from slipstream.run.pictures.window import MIRROR, UPSIDE_DOWN, Window

_FLIPS: dict[int, int] = {
    Image.Transpose.FLIP_LEFT_RIGHT: MIRROR,
    Image.Transpose.FLIP_TOP_BOTTOM: UPSIDE_DOWN,
    Image.Transpose.ROTATE_180: MIRROR | UPSIDE_DOWN,
}

# What Pillow sets in a new picture. Where it keeps the pixels depends on its version.
_BLANK = dict(vars(Image.Image()))
_CORE = "_im" if "_im" in _BLANK else "im"
del _BLANK[_CORE]
_copied_info = getattr(Image.Image, "_copy_info", lambda picture: picture.info.copy())
_set_class = vars(object)["__class__"].__set__


class LateAccess:
    """What `load` returns: Pillow's own, as soon as it is used, or its picture has pixels that may
    become others. Mostly nobody uses it.
    """

    def __init__(self, picture: Any) -> None:
        self._picture = picture
        self._own: Any = None

    def be(self, own: Any) -> None:
        """This one of Pillow's."""
        self._picture, self._own = None, own

    def _found(self) -> Any:
        if self._own is None and (picture := self._picture) is not None:
            own = _plain(picture).load()
            if self._own is None:  # another object answers for the picture
                self.be(own)
        return self._own

    def __getitem__(self, place: Any) -> Any:
        return self._found()[place]

    def __setitem__(self, place: Any, colour: Any) -> None:
        self._found()[place] = colour


class _Recording:
    """What both kinds of late pictures do."""

    _mode: str
    info: dict[Any, Any]

    def convert(
        self, mode: str | None = None, matrix: Any = None, *args: Any, **kwargs: Any
    ) -> Image.Image:
        """Noted where pixels stay what they are, or gray ones become three alike."""
        wanted = mode or self._mode
        stays = wanted == self._mode or (wanted == "RGB" and "transparency" not in self.info)
        if stays and not matrix and (noted := _noted(self)) is not None:
            return _next(self, *noted, wanted)
        return Image.Image.convert(_plain(self), mode, matrix, *args, **kwargs)

    def load(self) -> Any:
        """The file is read and looked at; its pixels are still made late."""
        if _noted(self) is None:
            return _plain(self).load()
        own = vars(self)
        access = own["_access"]() if "_access" in own else None
        if access is None:
            access = LateAccess(self)
            own["_access"] = weakref.ref(access)
        return access

    def copy(self) -> Image.Image:
        """Noted."""
        noted = _noted(self)
        return Image.Image.copy(_plain(self)) if noted is None else _next(self, *noted)

    __copy__ = copy

    def crop(self, box: Any = None) -> Image.Image:
        """Noted where the box lies inside."""
        if (sides := sides_of(box)) is not None and (noted := _noted(self)) is not None:
            window = noted[1].cropped(*sides)
            if window is not None and is_harmless(window.size):
                return _next(self, noted[0], window)
        return Image.Image.crop(_plain(self), box)

    def resize(
        self, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None,
        **kwargs: Any,
    ) -> Image.Image:  # fmt: skip
        """Noted once, of the whole picture."""
        filter = filter_of(resample)
        wanted = size_of(size)
        if (
            wanted is not None
            and filter is not None
            and box is None
            and reducing_gap is None
            and not kwargs
            and (noted := _noted(self)) is not None
        ):
            window = noted[1].resized(*wanted, filter)
            if window is not None:
                return _next(self, noted[0], window)
        return Image.Image.resize(_plain(self), size, resample, box, reducing_gap, **kwargs)

    def transpose(self, method: Any) -> Image.Image:
        """Flips are noted."""
        flips = _FLIPS.get(method) if isinstance(method, int) else None
        if flips is not None and (noted := _noted(self)) is not None:
            return _next(self, noted[0], noted[1].flipped(flips))
        return Image.Image.transpose(_plain(self), method)

    def tobytes(self, encoder_name: str = "raw", *args: Any) -> bytes:
        """The engine's, in the usual order."""
        if encoder_name == "raw" and not args and (pixels := _pixels(self)) is not None:
            return pixels.tobytes()
        return Image.Image.tobytes(_plain(self), encoder_name, *args)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The engine's pixels where they are; not to be written to, as those of Pillow."""
        pixels = _pixels(self)
        if pixels is None:
            of_pillow: dict[str, Any] = _plain(self).__array_interface__
            return of_pillow
        data = memoryview(pixels).toreadonly().cast("B")
        return {"version": 3, "data": data, "shape": pixels.shape, "typestr": "|u1"}

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _plain(self).__reduce_ex__(protocol)


class LateImage(_Recording, Image.Image):
    """A `PIL.Image.Image` that stands for a window of a file. Made by `_next`."""

    def _get_core(self) -> Any:
        return getattr(_plain(self), _CORE)

    def _set_core(self, value: Any) -> None:
        _settle(self)
        _become(self, Image.Image)
        setattr(self, _CORE, value)

    __class__ = property(lambda self: Image.Image)


setattr(LateImage, _CORE, property(LateImage._get_core, LateImage._set_core))


class LateJpegFile(_Recording, JpegImageFile):
    """A `JpegImageFile` whose file is read when Pillow would decode it."""

    def close(self) -> None:
        """As Pillow's."""
        _settle(self)
        _become(self, JpegImageFile)
        self.close()

    def _get_core(self) -> Any:
        own = vars(self)
        return getattr(_plain(self), _CORE) if "_source" in own else own[_CORE]

    def _set_core(self, value: Any) -> None:
        _settle(self)
        _become(self, JpegImageFile)
        setattr(self, _CORE, value)

    __class__ = property(lambda self: JpegImageFile)


setattr(LateJpegFile, _CORE, property(LateJpegFile._get_core, LateJpegFile._set_core))
# Whoever prints `type(picture)` reads what it stands for.
for late, own in ((LateImage, Image.Image), (LateJpegFile, JpegImageFile)):
    for word in ("__module__", "__qualname__", "__name__"):
        setattr(late, word, getattr(own, word))


def _noted(picture: Any) -> tuple[Source, Window] | None:
    """What a picture is, or None: it is Pillow's from now on."""
    own = vars(picture)
    if type(picture) is LateImage:
        noted: tuple[Source, Window] | None = own.get("_of")
        return noted
    if type(picture) is not LateJpegFile:
        return None  # another thread made it Pillow's
    if (source := own.get("_source")) is None:
        source = _read(picture)
        counts.add(by_engine=source is not None)
        if source is None:
            _become(picture, JpegImageFile)
            return None
        own["_source"], own["_tile"], picture.tile = source, picture.tile, []
        _let_go(picture)
    return source, Window.whole(*picture.size)


def window_of(picture: Any) -> tuple[Source, Window] | None:
    """What a late picture is, if its pixels were not asked for yet."""
    return _noted(picture) if "_made" not in vars(picture) else None


def _pixels(picture: Any) -> Pixels | None:
    """The engine's, [height, width, 3] or [height, width]; None as above. They are kept: numpy
    asks more than once.
    """
    own = vars(picture)
    pixels: Pixels | None = own.get("_made")
    if pixels is None and (noted := _noted(picture)) is not None:
        source, window = noted
        pixels = source.pixels(window)
        if own["_mode"] == "L":
            pixels = np.ascontiguousarray(pixels[:, :, 0])
        own["_made"] = pixels
    return pixels


def _next(picture: Any, source: Source, window: Window, mode: str = "") -> Image.Image:
    """The picture that Pillow would have made by now."""
    late = LateImage.__new__(LateImage)
    own = vars(late)
    own.update(_BLANK)
    own["_mode"], own["_size"] = mode or picture._mode, window.size
    own["info"] = _copied_info(picture)
    own["_of"] = source, window
    return late


def _plain(picture: Any) -> Any:
    """The object itself, one of Pillow's from now on, with what it needs to go on."""
    kind, own = type(picture), vars(picture)
    access = own["_access"]() if "_access" in own else None
    if kind is LateImage:
        # None where another thread was faster.
        if (pixels := _pixels(picture)) is not None:
            data: Any = memoryview(pixels).cast("B")
            own[_CORE] = Image.frombytes(own["_mode"], own["_size"], data).im
            _become(picture, Image.Image)
    elif kind is LateJpegFile:
        source, tile = own.get("_source"), own.get("_tile")
        _become(picture, JpegImageFile)
        if source is None:
            counts.add(by_engine=False)
        else:
            picture.fp, picture.tile = io.BytesIO(source.data), tile
            picture.load()
    if access is not None:
        access.be(picture.load())
    return picture


def _settle(picture: Any) -> None:
    """Who has got at the pixels goes on with those that there were."""
    own = vars(picture)
    if "_access" in own and own["_access"]() is not None:
        _plain(picture)


def _become(picture: Any, kind: type) -> None:
    # First, so that another thread does not find one without its notes.
    _set_class(picture, kind)
    for name in ("_of", "_made", "_source", "_tile", "_access"):
        vars(picture).pop(name, None)


def _read(picture: Any) -> Source | None:
    """The bytes of a file that was opened and nothing else."""
    own = vars(picture)
    fp, tile, size = picture.fp, picture.tile, picture.size
    is_untouched = (
        fp is not None
        and own[_CORE] is None
        and not picture.decoderconfig
        and len(tile) == 1
        and tuple(tile[0])[:3] == ("jpeg", (0, 0, *size), 0)
        and own["_mode"] in ("RGB", "L")
        and tile[0][3] in ((own["_mode"], ""), own["_mode"])
    )
    if not is_untouched:
        return None
    try:
        data = _bytes_of(fp)
        return Source.of(data, size) if type(data) is bytes else None
    except Exception:  # Pillow reads it again, and says what is wrong
        return None


def _bytes_of(fp: Any) -> Any:
    if type(fp) is io.BytesIO:
        return fp.getvalue()
    if type(fp) is io.BufferedReader and type(fp.raw) is FileIO:
        # Past the buffer, which would be copied twice.
        file = fp.fileno()
        length = os.fstat(file).st_size
        data = os.pread(file, length, 0)
        if len(data) == length > 0:
            return data
    fp.seek(0)
    return fp.read()


def _let_go(picture: Any) -> None:
    """Of the file, as Pillow does when it has decoded it."""
    if picture._exclusive_fp and picture._close_exclusive_fp_after_loading:
        picture.fp.close()
    picture.fp = None
