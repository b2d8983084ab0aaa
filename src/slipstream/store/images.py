"""Pictures of a packed dataset as pixels: crops, resized and flipped, equal to Pillow's."""

import functools
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image

from slipstream import _native
from slipstream.cpu import usable_cores
from slipstream.errors import CorruptDataset, UsageError
from slipstream.store.reader import Rows

Pixels = npt.NDArray[np.uint8]
status_text = _native.status_text
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4}
_BOX_SIZES = 4
_FLIP_BOTH = 3
# Of a plain file Pillow has the last word, unless the bytes are not those that were packed.
_FINAL = (_native.STATUS_OK, _native.STATUS_CHECKSUM, _native.STATUS_BOX, _native.STATUS_MEMORY)


class HasPictures(Protocol):
    """What `decode_images` needs of a dataset."""

    def rows(self, field: str, indices: npt.ArrayLike) -> Rows:
        """Where the payloads of these samples lie."""
        ...

    def picture_field(self, name: str | None = None) -> str:
        """The name of the picture field that is meant."""
        ...


def decode_images(  # noqa: PLR0913  flat, all but three by keyword
    dataset: HasPictures,
    indices: npt.ArrayLike,
    boxes: npt.ArrayLike,
    size: int | tuple[int, int],
    *,
    field: str | None = None,
    filter: int | str = "bilinear",
    flips: npt.ArrayLike | None = None,
    out: Pixels | None = None,
    threads: int | None = None,
) -> tuple[Pixels, npt.NDArray[np.int32]]:
    """Decode one box of each sample's picture, resized to `size` = (width, height), all in one
    call.

    Equals `Image.open(f).convert("RGB").crop(box).resize(size, filter)`, then the flip, byte for
    byte. `boxes` are int (x, y, width, height), one per sample; `flips` has bit 0 for left-right
    and bit 1 for top-bottom. `out` is uint8[N, height, width, 3], made if it is None. Returns it
    and one status per sample: 0, or a number that `slipstream.store.images.status_text` explains;
    the pixels of a sample whose status is not 0 are all 0.

        dataset = slipstream.open_dataset("train.slip")
        pixels, status = decode_images(dataset, [0, 7], [(0, 0, 64, 64), (8, 8, 90, 90)], 224)
    """
    name = dataset.picture_field(field)
    rows = dataset.rows(name, indices)
    return decode_rows(rows, boxes, size, filter=filter, flips=flips, out=out, threads=threads)


@functools.cache
def pass_order(version: str = PIL.__version__) -> int:
    """The number by which the engine knows the installed Pillow's order of resize passes.

    Pillow's versions differ in the last bit there; the engine equals the one that is installed.

    >>> pass_order("11.3.0"), pass_order("12.2.0"), pass_order("13.0.0")
    (0, 1, 2)
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    if major >= 13:
        return 2
    return 1 if (major, minor) >= (12, 2) else 0


def decode_rows(
    rows: Rows,
    boxes: npt.ArrayLike,
    size: int | tuple[int, int],
    *,
    filter: int | str = "bilinear",
    flips: npt.ArrayLike | None = None,
    out: Pixels | None = None,
    threads: int | None = None,
) -> tuple[Pixels, npt.NDArray[np.int32]]:
    """`decode_images` for payloads that were looked up before."""
    if rows.codings is None:
        raise UsageError("These rows are of a field that holds no pictures.")
    count = len(rows.map_ids)
    width, height = _as_size(size)
    box_array = _as_table(boxes, count)
    flip_array = _as_flips(flips, count)
    if out is None:
        out = np.empty((count, height, width, 3), dtype=np.uint8)
    elif not (out.flags.c_contiguous and out.flags.writeable):
        raise UsageError("out is not contiguous or not writable: its rows must follow each other.")
    elif out.shape != (count, height, width, 3) or out.dtype != np.uint8:
        raise UsageError(
            f"out is {out.dtype}{list(out.shape)}, expected uint8{[count, height, width, 3]}."
        )
    number = _filter_number(filter)
    threads = usable_cores() if threads is None else threads
    if threads < 1:
        raise UsageError(f"threads is {threads}, expected at least 1.")
    status = _native.decode_batch(
        rows.maps, rows.map_ids, rows.offsets, rows.lengths, rows.codings, rows.checksums,
        box_array, flip_array, out, number, pass_order(), threads,
    )  # fmt: skip
    left = np.flatnonzero((rows.codings == 0) & ~np.isin(status, _FINAL)).tolist()
    if left:
        _decode_by_pillow(rows, left, box_array, flip_array, out, status, number, threads)
    out[status != _native.STATUS_OK] = 0
    return out, status


def decode_whole(rows: Rows, where: str) -> Pixels:
    """The one picture in `rows`, whole, as uint8[height, width, 3]. Raises `CorruptDataset`."""
    assert rows.widths is not None and rows.heights is not None
    width, height = int(rows.widths[0]), int(rows.heights[0])
    if width * height > (Image.MAX_IMAGE_PIXELS or width * height) * 2:
        raise CorruptDataset(
            "picture too large",
            where=where,
            got=f"{width} x {height}",
            do="Raise PIL.Image.MAX_IMAGE_PIXELS if it is meant to be so large.",
        )
    pixels, status = decode_rows(rows, [(0, 0, width, height)], (width, height), threads=1)
    if status[0] != _native.STATUS_OK:
        reason = status_text(int(status[0]))
        raise CorruptDataset(f"picture cannot be decoded: {reason}", where=where)
    whole: Pixels = pixels[0]
    return whole


def _decode_by_pillow(
    rows: Rows,
    left: Sequence[int],
    boxes: npt.NDArray[np.int32],
    flips: npt.NDArray[np.uint8],
    out: Pixels,
    status: npt.NDArray[np.int32],
    filter_number: int,
    threads: int,
) -> None:
    """Decode what the engine leaves to Pillow: PNG, WebP, CMYK or damaged JPEG and the like."""

    def decode(k: int) -> None:
        start = int(rows.offsets[k])
        data = memoryview(rows.maps[rows.map_ids[k]])[start : start + int(rows.lengths[k])]
        if _native.crc32c(data) != int(rows.checksums[k]):
            status[k] = _native.STATUS_CHECKSUM
            return
        assert rows.widths is not None and rows.heights is not None
        true_size = (int(rows.widths[k]), int(rows.heights[k]))
        status[k] = _decode_file(
            bytes(data), true_size, boxes[k].tolist(), int(flips[k]), out[k], filter_number
        )

    if threads == 1 or len(left) == 1:
        for k in left:
            decode(k)
        return
    with ThreadPoolExecutor(min(threads, len(left))) as pool:
        list(pool.map(decode, left))


def _decode_file(
    data: bytes, true_size: tuple[int, int], box: list[int], flip: int, out: Pixels, number: int
) -> int:
    x, y, width, height = box
    if x < 0 or y < 0 or width < 1 or height < 1:
        return int(_native.STATUS_BOX)
    if x + width > true_size[0] or y + height > true_size[1]:
        return int(_native.STATUS_BOX)
    try:
        with Image.open(io.BytesIO(data)) as opened:
            if opened.size != true_size:
                return int(_native.STATUS_CORRUPT)
            picture = opened.convert("RGB").crop((x, y, x + width, y + height))
    except MemoryError:
        return int(_native.STATUS_MEMORY)
    except Exception:  # Pillow's plugins raise whatever broken bytes lead them to
        return int(_native.STATUS_CORRUPT)
    target = (out.shape[1], out.shape[0])
    if picture.size != target:
        picture = picture.resize(target, Image.Resampling(number))
    pixels = np.asarray(picture)
    if flip & 1:
        pixels = pixels[:, ::-1]
    if flip & 2:
        pixels = pixels[::-1]
    out[:] = pixels
    return int(_native.STATUS_OK)


def _as_size(size: int | tuple[int, int]) -> tuple[int, int]:
    sides = np.asarray(size)
    if sides.shape not in ((), (2,)) or sides.dtype.kind not in "iu" or sides.min() < 1:
        raise UsageError(
            f"size is {size!r}, expected a number of pixels from 1, or (width, height)."
        )
    width, height = np.broadcast_to(sides, 2).tolist()
    return width, height


def _as_table(boxes: npt.ArrayLike, count: int) -> npt.NDArray[np.int32]:
    given = np.asarray(boxes)
    if given.size == 0 and count == 0:
        return np.empty((0, _BOX_SIZES), dtype=np.int32)
    if given.shape != (count, _BOX_SIZES) or given.dtype.kind not in "iu":
        raise UsageError(
            f"boxes are {given.dtype}{list(given.shape)}, expected integers [{count}, 4]:"
            " x, y, width, height of each."
        )
    limits = np.iinfo(np.int32)
    return np.ascontiguousarray(given.clip(limits.min, limits.max), dtype=np.int32)


def _as_flips(flips: npt.ArrayLike | None, count: int) -> npt.NDArray[np.uint8]:
    if flips is None:
        return np.zeros(count, dtype=np.uint8)
    given = np.asarray(flips)
    if given.shape != (count,):
        raise UsageError(f"flips have shape {list(given.shape)}, expected [{count}].")
    if count and (given.dtype.kind not in "biu" or given.min() < 0 or given.max() > _FLIP_BOTH):
        raise UsageError("flips are outside 0 to 3: bit 0 is left-right, bit 1 top-bottom.")
    return np.ascontiguousarray(given, dtype=np.uint8)


def _filter_number(filter: int | str) -> int:
    number = FILTERS.get(filter.lower(), -1) if isinstance(filter, str) else int(filter)
    if number not in FILTERS.values():
        raise UsageError(f"Unknown filter {filter!r}. Filters: {', '.join(FILTERS)}.")
    return number
