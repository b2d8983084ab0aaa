"""A folder of pictures: one folder per class, or all flat."""

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError
from slipstream.pack.sources.source import Item, hash_lines, read_ahead
from slipstream.store.schema import Field

JPEG_SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif"})
_JPEG_ENDINGS = tuple(JPEG_SUFFIXES)
PICTURE_SUFFIXES = JPEG_SUFFIXES | frozenset(
    {".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".avif"}
)
_HIDDEN = "hidden"
_SHOWN_FOLDERS = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """A picture file: its path, its name in the dataset, and the values of the extra fields.

    `named_by` is where the name comes from, if not from the folder itself.
    """

    path: str
    key: str
    values: tuple[Any, ...] = ()
    file_bytes: int = 0
    changed_ns: int = 0
    named_by: str = ""


@dataclass(frozen=True)
class PictureFiles:
    """A source of picture files with a key and some values each; see
    `slipstream.pack.sources.source`.
    """

    kind: str
    entries: Sequence[Entry]
    extra_fields: tuple[Field, ...] = ()
    classes: tuple[str, ...] | None = None
    remarks: list[str] = field(default_factory=list)
    picture_name: str = "image"

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Picture, extra fields, key. One JPEG among the files is enough for the kind `jpeg`."""
        is_jpeg = any(entry.path.lower().endswith(_JPEG_ENDINGS) for entry in self.entries)
        picture = Field(self.picture_name, "jpeg" if is_jpeg else "image")
        return (picture, *self.extra_fields, Field("key", "text"))

    @property
    def length(self) -> int:
        """Number of pictures."""
        return len(self.entries)

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(entry.file_bytes for entry in self.entries)

    @cached_property
    def digest(self) -> str:
        """Hash of names, values and sizes."""
        return hash_lines(f"{e.key}|{e.values}|{e.file_bytes}" for e in self.entries)

    @cached_property
    def stamp(self) -> str:
        """Hash of names, values, sizes and times of change."""
        return hash_lines(f"{e.key}|{e.values}|{e.file_bytes}|{e.changed_ns}" for e in self.entries)

    def items(self, start: int) -> Iterator[Item]:
        """Items from `start` on; files are read ahead by a few threads."""
        return read_ahead(self.entries, start, _read, lambda entry: entry.file_bytes)


def open_folder(folder: Path) -> PictureFiles:
    """A folder with one sub-folder per class (label = its place in sorted order), or a flat one.

    The order is that of torchvision's `ImageFolder`. Raises `UsageError` where there are no
    pictures, or class folders with loose pictures beside them.
    """
    entries, ignored = scan_pictures(folder)
    remarks = _describe_ignored(ignored)
    if not entries:
        raise UsageError(
            f"No pictures in {folder}. Files are taken for pictures by their suffix:"
            f" {', '.join(sorted(PICTURE_SUFFIXES))}."
        )
    loose = [entry.key for entry in entries if "/" not in entry.key]
    if len(loose) == len(entries):
        return PictureFiles("folder", entries, remarks=remarks)
    if loose:
        foldered = next(entry.key for entry in entries if "/" in entry.key)
        raise UsageError(
            f"{folder} has pictures in class folders ({printable(foldered)}) and loose ones beside"
            f" them ({printable(loose[0])}): which label the loose ones have is unknown. Move them"
            " into a folder, or pack the folders one by one."
        )
    classes = tuple(sorted({entry.key.split("/", 1)[0] for entry in entries}))
    _check_class_names(folder, classes)
    remarks += _describe_empty(folder, classes)
    numbers = {name: number for number, name in enumerate(classes)}
    labelled = [
        Entry(e.path, e.key, (numbers[e.key.split("/", 1)[0]],), e.file_bytes, e.changed_ns)
        for e in sorted(entries, key=lambda e: numbers[e.key.split("/", 1)[0]])
    ]
    extra = (Field("label", "int"),)
    return PictureFiles("class folders", labelled, extra, classes, remarks)


def scan_pictures(folder: Path) -> tuple[list[Entry], Counter[str]]:
    """All pictures below `folder`, sorted by folder, then name; and how many other files by
    suffix.
    """
    entries: list[Entry] = []
    ignored: Counter[str] = Counter()
    for place, names in _walk(folder):
        for name in names:
            suffix = os.path.splitext(name)[1].lower()  # noqa: PTH122  no Path object per file
            if name.startswith("."):
                ignored[_HIDDEN] += 1
                continue
            if suffix not in PICTURE_SUFFIXES:
                ignored[printable(suffix or name)] += 1
                continue
            path = f"{place}/{name}"
            entries.append(_entry(path, path[len(str(folder)) + 1 :]))
    return entries, ignored


def _walk(folder: Path) -> list[tuple[str, list[str]]]:
    """Folders with their sorted file names. Links are followed, but not into a folder above."""
    found = []
    above: dict[str, frozenset[str]] = {}
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        parents = above.get(os.path.dirname(place), frozenset())  # noqa: PTH120  as below
        if real in parents:
            folders.clear()
            continue
        above[place] = parents | {real}
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found.append((place, sorted(names)))
    return sorted(found)


def _entry(path: str, key: str, values: tuple[Any, ...] = ()) -> Entry:
    try:
        state = os.stat(path)  # noqa: PTH116  no Path object per file
    except OSError:
        # A dangling link, say: reading it will fail and be reported as this item's error.
        return Entry(path, key, values)
    return Entry(path, key, values, state.st_size, state.st_mtime_ns)


def entry_for(path: Path, key: str, values: tuple[Any, ...]) -> Entry:
    """An entry for one file, with its size and time of change."""
    return _entry(str(path), key, values)


def printable(name: str) -> str:
    """A file name fit for messages: bytes that are not UTF-8 as escapes.

    >>> printable("caf\\udce9.jpg")
    'caf\\\\udce9.jpg'
    """
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _read(entry: Entry) -> Item:
    if printable(entry.key) != entry.key:
        return Item(printable(entry.key), error="the name is not UTF-8; rename the file")
    try:
        if not stat.S_ISREG(Path(entry.path).stat().st_mode):  # a pipe would wait forever
            return Item(entry.key, error="not a file")
        data = Path(entry.path).read_bytes()
    except OSError as error:
        origin = f" (named in {entry.named_by})" if entry.named_by else ""
        return Item(entry.key, error=f"cannot be read: {error.strerror}{origin}")
    if not data:
        return Item(entry.key, error="the file is empty")
    return Item(entry.key, (data, *entry.values, entry.key))


def _check_class_names(folder: Path, classes: Sequence[str]) -> None:
    for name in classes:
        if printable(name) != name:
            raise UsageError(f"{folder}: the name of {printable(name)} is not UTF-8. Rename it.")


def _describe_ignored(ignored: Counter[str]) -> list[str]:
    remarks = []
    others = Counter({suffix: count for suffix, count in ignored.items() if suffix != _HIDDEN})
    if others:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in others.most_common(5))
        remarks.append(f"files that are no pictures were left aside: {kinds}")
    if ignored[_HIDDEN]:
        remarks.append(f"hidden files were left aside: {ignored[_HIDDEN]}")
    return remarks


def _describe_empty(folder: Path, classes: Sequence[str]) -> list[str]:
    with os.scandir(folder) as found:
        names = {e.name for e in found if e.is_dir() and not e.name.startswith(".")}
    empty = sorted(printable(name) for name in names - set(classes))
    if not empty:
        return []
    shown = ", ".join(empty[:_SHOWN_FOLDERS]) + (", …" if len(empty) > _SHOWN_FOLDERS else "")
    plural = "" if len(empty) == 1 else "s"
    return [f"{len(empty)} empty class folder{plural} left out: {shown}"]
