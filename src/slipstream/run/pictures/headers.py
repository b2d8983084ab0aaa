"""Opens JPEG files whose headers are like one that Pillow has read before, without reading them in
Python again.

All that Pillow finds in a header is the same for files that agree in every segment but the size
and the Huffman tables, which it skips. A file of a dataset mostly has thousands like it.
"""

import io
import os
from typing import Any

from PIL import Image, JpegImagePlugin
from PIL.JpegImagePlugin import JpegImageFile

_HEAD_BYTES = 4096
_MOST = 512
_START = b"\xff\xd8\xff"
_APP0, _DQT, _COM, _SOF0, _SOS = 0xE0, 0xDB, 0xFE, 0xC0, 0xDA
_KEPT = (_APP0, _DQT, _COM, _SOF0, _SOS)
_SKIPPED = (0xC4, 0xDD)  # DHT, DRI
_known: dict[bytes, dict[str, Any]] = {}


class Header:
    """What can be told from the first bytes of a file; `key` is alike for all that are alike."""

    __slots__ = ("end", "key", "size")

    def __init__(self, key: bytes, size: tuple[int, int], end: int) -> None:
        self.key, self.size, self.end = key, size, end


def header_of(head: bytes) -> Header | None:
    """None for all but the plainest headers.

    >>> header_of(b"GIF89a") is None
    True
    """
    if head[:3] != _START:
        return None
    parts, size, at = [], None, 2
    while at + 4 <= len(head) and head[at] == 0xFF:
        kind, length = head[at + 1], head[at + 2] << 8 | head[at + 3]
        end = at + 2 + length
        if end > len(head) or length < 2:
            return None
        if kind in _KEPT:
            part = head[at:end]
            if kind == _SOF0:
                if size is not None or length < 9:
                    return None
                size = head[at + 7] << 8 | head[at + 8], head[at + 5] << 8 | head[at + 6]
                part = part[:5] + part[9:]
            parts.append(part)
            if kind == _SOS:
                return Header(b"".join(parts), size, end) if size and all(size) else None
        elif kind in _SKIPPED:
            parts.append(head[at : at + 2])
        else:
            return None
        at = end
    return None


def open_alike(fp: Any) -> tuple[Any, Header | None]:
    """The picture that Pillow would open, or None, and the header of the file, if it is plain.
    What goes wrong is left to Pillow, which then meets it too.
    """
    is_path = isinstance(fp, (str, bytes, os.PathLike))
    if not is_path and type(fp) not in (io.BytesIO, io.BufferedReader):
        return None, None
    if Image.OPEN.get("JPEG", (None,))[0] is not JpegImagePlugin.jpeg_factory:
        return None, None
    file = picture = header = None
    try:
        file = open(os.fspath(fp), "rb") if is_path else fp  # noqa: PTH123, SIM115  as Pillow does
        file.seek(0)
        header = header_of(file.read(_HEAD_BYTES) if type(file) is io.BytesIO else file.peek())
        if header is not None and is_harmless(header.size):
            picture = _opened(header, file, os.fspath(fp) if is_path else None)
    except Exception:
        picture = None
    if is_path and picture is None and file is not None:
        file.close()
    return picture, header


def _opened(header: Header, file: Any, filename: Any) -> Any:
    attributes = _known.get(header.key)
    if attributes is None:
        return None
    picture: Any = JpegImageFile.__new__(JpegImageFile)
    own = vars(picture)
    own.update(_copied(attributes))
    own["_size"] = header.size
    tile = own["tile"][0]
    own["tile"] = [type(tile)(tile[0], (0, 0, *header.size), *tile[2:])]
    own["fp"], own["_exclusive_fp"], own["filename"] = file, filename is not None, filename or ""
    file.seek(header.end)
    return picture


def is_harmless(size: tuple[int, int]) -> bool:
    """Whether Pillow does not warn of a decompression bomb."""
    return Image.MAX_IMAGE_PIXELS is None or size[0] * size[1] <= Image.MAX_IMAGE_PIXELS


def remember(header: Header, picture: Any) -> None:
    """A picture was opened, and nobody else has seen it yet."""
    if header.key in _known:
        return
    attributes = dict(vars(picture))
    tile = attributes["tile"]
    is_usual = (
        picture.size == header.size
        and len(tile) == 1
        and tuple(tile[0])[:3] == ("jpeg", (0, 0, *header.size), 0)
        and attributes.get("_exif") is None
    )
    if not is_usual:
        return
    for name in ("fp", "filename", "_exclusive_fp"):
        attributes.pop(name, None)
    if len(_known) >= _MOST:
        _known.clear()
    # A copy: what is handed out may be changed.
    _known[header.key] = _copied(attributes)


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.copy() if type(value) in (dict, list) else value
        for name, value in attributes.items()
    }
