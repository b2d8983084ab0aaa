"""Picture files to payloads: rewritten, kept, shrunk or decoded, a batch at a time."""

import io
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from PIL import Image

from slipstream import _native
from slipstream.errors import UsageError
from slipstream.pack.fields import Payload
from slipstream.pack.shrink import shrink
from slipstream.store.schema import PICTURES, Field

_JPEG_MAGIC = b"\xff\xd8"
_ORIENTATION_TAG = 0x0112


@dataclass(frozen=True, slots=True)
class PictureOptions:
    """What `pack` does to pictures. All of it changes the packed bytes; by default nothing is lost.

    `orient` turns JPEGs upright where that is possible without loss; `max_side` and `quality`
    shrink; `decoded` stores pixels in place of files.
    """

    orient: bool = False
    max_side: int | None = None
    quality: int | None = None
    decoded: bool = False

    def __post_init__(self) -> None:
        if self.max_side is not None and self.max_side < 1:
            raise UsageError(f"--max-side {self.max_side}: expected a number of pixels from 1.")
        if self.quality is not None and not 1 <= self.quality <= 100:
            raise UsageError(f"--quality {self.quality}: expected 1 to 100.")
        idle = [n for n in ("quality", "orient") if self.decoded and n in self.to_json()]
        if idle:
            raise UsageError(
                f"--{idle[0]} is for JPEGs that stay files, --decoded stores pixels. Leave one out."
            )

    @property
    def is_lossy(self) -> bool:
        """Whether pictures may lose something."""
        return self.max_side is not None or self.quality is not None

    @property
    def names(self) -> list[str]:
        """The options that are set, as the command line spells them."""
        return ["--" + name.replace("_", "-") for name in self.to_json()]

    def to_json(self) -> dict[str, Any]:
        """The options that are set."""
        return {name: value for name, value in asdict(self).items() if value not in (None, False)}


def stored_field(field: Field, options: PictureOptions) -> Field:
    """The field as it is stored under these options."""
    if field.kind in PICTURES and options.decoded:
        return Field(field.name, "array", dtype="|u1", shape=None, ndim=3)
    return field


def encode_pictures(
    files: Sequence[bytes],
    kind: str,
    options: PictureOptions,
    pool: ThreadPoolExecutor,
    threads: int,
) -> list[Payload | str]:
    """One payload per picture file, or the reason why there is none, in order."""
    results: list[Payload | str | None] = [None] * len(files)
    current = list(files)
    if options.is_lossy:
        for k, made in enumerate(pool.map(lambda data: _try_shrink(data, options), files)):
            if isinstance(made, str):
                results[k] = made
            else:
                current[k] = made
    if not options.decoded and kind == "jpeg":
        wanted = [k for k, d in enumerate(current) if results[k] is None and d[:2] == _JPEG_MAGIC]
        made_records = _rewrite([current[k] for k in wanted], options.orient, threads)
        for k, record in zip(wanted, made_records, strict=True):
            results[k] = record if record.coding == 1 else None
        kept = {k: record.kept for k, record in zip(wanted, made_records, strict=True)}
    else:
        kept = {}
    left = [k for k, result in enumerate(results) if result is None]
    encode = _decode if options.decoded else _check_file
    tasks = pool.map(lambda k: encode(current[k], kept.get(k, "")), left)
    for k, payload in zip(left, tasks, strict=True):
        results[k] = payload
    return [result for result in results if result is not None]


def _rewrite(files: list[bytes], orient: bool, threads: int) -> list[Payload]:
    """Tile records; a payload of coding 0 without bytes, with the reason, where there is none."""
    if not files:
        return []
    payloads = []
    for made in _native.rewrite_jpegs(files, orient, threads):
        if made.status == _native.STATUS_OK:
            payload = Payload(
                made.record,
                made.width,
                made.height,
                1,
                made.orientation,
                turned=made.oriented,
                trailing_bytes=made.trailing_bytes,
            )
        else:
            payload = Payload(b"", kept=made.message or _native.status_text(made.status))
        payloads.append(payload)
    return payloads


def _try_shrink(data: bytes, options: PictureOptions) -> bytes | str:
    try:
        return shrink(data, max_side=options.max_side, quality=options.quality)
    except Exception as error:  # Pillow's plugins raise whatever broken bytes lead them to
        return _undecodable(error)


def _check_file(data: bytes, kept: str) -> Payload | str:
    """The file as it is, after Pillow has decoded all of it."""
    try:
        with Image.open(io.BytesIO(data)) as picture:
            orientation = _orientation(picture)
            width, height = picture.size
            picture.convert("RGB")
    except Exception as error:  # as above
        return _undecodable(error)
    return Payload(data, width, height, 0, orientation, kept=kept)


def _decode(data: bytes, kept: str) -> Payload | str:
    """Pixels as a ragged array. `kept` has no meaning here."""
    del kept
    try:
        with Image.open(io.BytesIO(data)) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except Exception as error:  # as above
        return _undecodable(error)
    return Payload(struct.pack("<3Q", *pixels.shape) + pixels.tobytes())


def _orientation(picture: Image.Image) -> int:
    try:
        value = picture.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # a broken EXIF block does not make the picture unreadable
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _undecodable(error: Exception) -> str:
    text = str(error).split(" <")[0].strip() or type(error).__name__
    return f"cannot be decoded: {text}"
