"""Pictures as pixels: crops, resized and flipped, equal to Pillow's."""

import functools
import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import PIL
from PIL import Image, UnidentifiedImageError

from slipstream import _native
from slipstream.cpu import usable_cores
from slipstream.errors import CorruptDataset, UsageError
from slipstream.store.reader import Rows

Pixels = npt.NDArray[np.uint8]
status_text = _native.status_text
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4}
_BOX_SIZES = 4
_FLIP_BOTH = 3
_LONGEST_SIDE = 1 << 24  # the engine's limit
# Of a plain file Pillow has the last word, unless the bytes are not those that were packed.
_FINAL = (_native.STATUS_OK, _native.STATUS_CHECKSUM, _native.STATUS_BOX, _native.STATUS_MEMORY)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Picture files in memory, one map each, as `Rows` of a dataset. Nothing knows checksums."""

    maps: list[Pixels]
    map_ids: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    codings: npt.NDArray[np.uint8]
    widths: npt.NDArray[np.uint32]
    heights: npt.NDArray[np.uint32]
    checksums: None = None


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """What `open_files` read. A file with an entry in `errors` has width and height 0."""

    rows: FileRows
    errors: dict[int, str]


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
    resized: npt.ArrayLike | None = None,
    out: Pixels | None = None,
    threads: int | None = None,
) -> tuple[Pixels, npt.NDArray[np.int32]]:
    """Decode one box of each sample's picture, resized to `size` = (width, height), all in one
    call.

    Equals `Image.open(f).convert("RGB").crop(box).resize(size, filter)`, then the flip, byte for
    byte. `boxes` are int (x, y, width, height), one per sample; `flips` has bit 0 for left-right
    and bit 1 for top-bottom. With `resized`, int (full_width, full_height, left, top) per sample,
    the box is resized to the full size, and of that only `.crop((left, top, left + width, top +
    height))` is decoded: (256, 256, 16, 16) and size 224 is Resize and CenterCrop. `out` is
    uint8[N, height, width, 3], made if it is None. Returns it and one status per sample: 0, or a
    number that `slipstream.store.images.status_text` explains; the pixels of a sample whose status
    is not 0 are all 0.

        dataset = slipstream.open_dataset("train.slip")
        pixels, status = decode_images(dataset, [0, 7], [(0, 0, 64, 64), (8, 8, 90, 90)], 224)
    """
    name = dataset.picture_field(field)
    rows = dataset.rows(name, indices)
    return decode_rows(
        rows, boxes, size, filter=filter, flips=flips, resized=resized, out=out, threads=threads
    )


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


def open_files(paths: Sequence[str | os.PathLike[str]], threads: int | None = None) -> OpenedFiles:
    """Read picture files, on all cores, for `decode_rows`.

    Sizes are those in the files' headers; EXIF orientation is not applied. What cannot be read or
    is no picture has its reason in `errors`, by its place in `paths`.

        opened = open_files(["a.jpg", "b.png"])
        sizes = np.stack([opened.rows.widths, opened.rows.heights], axis=1)
        boxes = np.concatenate([np.zeros_like(sizes), sizes], axis=1)
        pixels, status = decode_rows(opened.rows, boxes, 224)
    """
    names = [os.fsencode(path) for path in paths]
    files, sizes, errnos = _native.read_files(names, _as_threads(threads))
    errors = {int(k): os.strerror(errnos[k]) for k in np.flatnonzero(errnos)}
    for k in np.flatnonzero((sizes[:, 0] == 0) & (errnos == 0)).tolist():
        try:
            with Image.open(io.BytesIO(files[k])) as picture:
                sizes[k] = picture.size
        except MemoryError:
            raise
        except Exception as error:  # Pillow's plugins raise whatever broken bytes lead them to
            empty = "file is empty" if files[k].size == 0 else None
            unknown = "not a picture" if isinstance(error, UnidentifiedImageError) else None
            errors[k] = empty or unknown or f"not a picture: {error}"
    count = len(names)
    rows = FileRows(
        maps=files,
        map_ids=np.arange(count, dtype=np.uint32),
        offsets=np.zeros(count, dtype=np.uint64),
        lengths=np.array([file.size for file in files], dtype=np.uint64),
        codings=np.zeros(count, dtype=np.uint8),
        widths=np.ascontiguousarray(sizes[:, 0], dtype=np.uint32),
        heights=np.ascontiguousarray(sizes[:, 1], dtype=np.uint32),
    )
    return OpenedFiles(rows, dict(sorted(errors.items())))


def decode_rows(
    rows: Rows | FileRows,
    boxes: npt.ArrayLike,
    size: int | tuple[int, int],
    *,
    filter: int | str = "bilinear",
    flips: npt.ArrayLike | None = None,
    resized: npt.ArrayLike | None = None,
    out: Pixels | None = None,
    threads: int | None = None,
) -> tuple[Pixels, npt.NDArray[np.int32]]:
    """`decode_images` for payloads that were looked up before."""
    if rows.codings is None:
        raise UsageError("These rows are of a field that holds no pictures.")
    count = len(rows.map_ids)
    width, height = _as_size(size)
    crops = _Crops(
        _as_table(boxes, count, "boxes", "x, y, width, height"),
        _as_flips(flips, count),
        None
        if resized is None
        else _as_table(resized, count, "resized", "full width, full height, left, top"),
    )
    if out is None:
        out = np.empty((count, height, width, 3), dtype=np.uint8)
    elif not (out.flags.c_contiguous and out.flags.writeable):
        raise UsageError("out is not contiguous or not writable: its rows must follow each other.")
    elif out.shape != (count, height, width, 3) or out.dtype != np.uint8:
        raise UsageError(
            f"out is {out.dtype}{list(out.shape)}, expected uint8{[count, height, width, 3]}."
        )
    number = _filter_number(filter)
    threads = _as_threads(threads)
    status = _native.decode_batch(
        rows.maps, rows.map_ids, rows.offsets, rows.lengths, rows.codings, rows.checksums,
        *crops, out, number, pass_order(), threads,
    )  # fmt: skip
    left = np.flatnonzero((rows.codings == 0) & ~np.isin(status, _FINAL)).tolist()
    if left:
        _decode_by_pillow(rows, left, crops, out, status, number, threads)
    out[status != _native.STATUS_OK] = 0
    return out, status


def decode_whole(rows: Rows | FileRows, where: str) -> Pixels:
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


class _Crops(NamedTuple):
    boxes: npt.NDArray[np.int32]
    flips: npt.NDArray[np.uint8]
    resized: npt.NDArray[np.int32] | None


def _decode_by_pillow(
    rows: Rows | FileRows,
    left: Sequence[int],
    crops: _Crops,
    out: Pixels,
    status: npt.NDArray[np.int32],
    filter_number: int,
    threads: int,
) -> None:
    """Decode what the engine leaves to Pillow: PNG, WebP, CMYK or damaged JPEG and the like."""

    def decode(k: int) -> None:
        start = int(rows.offsets[k])
        data = memoryview(rows.maps[rows.map_ids[k]])[start : start + int(rows.lengths[k])]
        if rows.checksums is not None and _native.crc32c(data) != int(rows.checksums[k]):
            status[k] = _native.STATUS_CHECKSUM
            return
        assert rows.widths is not None and rows.heights is not None
        true_size = (int(rows.widths[k]), int(rows.heights[k]))
        status[k] = _decode_file(bytes(data), true_size, crops, k, out[k], filter_number)

    if threads == 1 or len(left) == 1:
        for k in left:
            decode(k)
        return
    with ThreadPoolExecutor(min(threads, len(left))) as pool:
        list(pool.map(decode, left))


def _decode_file(
    data: bytes, true_size: tuple[int, int], crops: _Crops, k: int, out: Pixels, number: int
) -> int:
    x, y, width, height = crops.boxes[k].tolist()
    out_height, out_width = out.shape[:2]
    full_width, full_height, left, top = out_width, out_height, 0, 0
    if crops.resized is not None:
        full_width, full_height, left, top = crops.resized[k].tolist()
    inside = (
        _is_inside(x, width, true_size[0])
        and _is_inside(y, height, true_size[1])
        and _is_inside(left, out_width, full_width)
        and _is_inside(top, out_height, full_height)
        and max(full_width, full_height) <= _LONGEST_SIDE
    )
    if not inside:
        return int(_native.STATUS_BOX)
    try:
        with Image.open(io.BytesIO(data)) as opened:
            if opened.size != true_size:
                return int(_native.STATUS_CORRUPT)
            picture = opened.convert("RGB").crop((x, y, x + width, y + height))
        if picture.size != (full_width, full_height):
            picture = picture.resize((full_width, full_height), Image.Resampling(number))
    except MemoryError:
        return int(_native.STATUS_MEMORY)
    except Exception:  # Pillow's plugins raise whatever broken bytes lead them to
        return int(_native.STATUS_CORRUPT)
    pixels = np.asarray(picture)[top : top + out_height, left : left + out_width]
    if crops.flips[k] & 1:
        pixels = pixels[:, ::-1]
    if crops.flips[k] & 2:
        pixels = pixels[::-1]
    out[:] = pixels
    return int(_native.STATUS_OK)


def _is_inside(start: int, length: int, whole: int) -> bool:
    return start >= 0 and length >= 1 and start + length <= whole


def _as_threads(threads: int | None) -> int:
    threads = usable_cores() if threads is None else threads
    if threads < 1:
        raise UsageError(f"threads is {threads}, expected at least 1.")
    return threads


def _as_size(size: int | tuple[int, int]) -> tuple[int, int]:
    sides = np.asarray(size)
    if sides.shape not in ((), (2,)) or sides.dtype.kind not in "iu" or sides.min() < 1:
        raise UsageError(
            f"size is {size!r}, expected a number of pixels from 1, or (width, height)."
        )
    width, height = np.broadcast_to(sides, 2).tolist()
    return width, height


def _as_table(table: npt.ArrayLike, count: int, name: str, columns: str) -> npt.NDArray[np.int32]:
    given = np.asarray(table)
    if given.size == 0 and count == 0:
        return np.empty((0, _BOX_SIZES), dtype=np.int32)
    if given.shape != (count, _BOX_SIZES) or given.dtype.kind not in "iu":
        raise UsageError(
            f"{name} are {given.dtype}{list(given.shape)}, expected integers [{count}, 4]:"
            f" {columns} of each."
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
