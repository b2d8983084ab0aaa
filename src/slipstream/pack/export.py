"""Ordinary files out of a packed dataset."""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from slipstream import _native
from slipstream.errors import CorruptDataset, StorageError, UsageError
from slipstream.store.reader import Store
from slipstream.store.schema import PICTURES, SCALARS, Field
from slipstream.store.shard import Shard
from slipstream.store.values import decode_value

TABLE_NAME = "labels.csv"
_MARK_NAME = ".unfinished-export"
_SUFFIXES = (
    (b"\xff\xd8", ".jpg"),
    (b"\x89PNG", ".png"),
    (b"BM", ".bmp"),
    (b"GIF8", ".gif"),
    (b"II*\x00", ".tif"),
    (b"MM\x00*", ".tif"),
)


@dataclass(frozen=True)
class ExportReport:
    """What an export has written. `table` is the CSV of numbers and texts, where there are any.

    `skipped` tells of the damaged samples that were left out.
    """

    files: int
    bytes: int
    table: Path | None = None
    renamed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def export_dataset(
    path: str | Path,
    out: str | Path,
    *,
    on_error: str = "raise",
    progress: Callable[[int, int], None] | None = None,
) -> ExportReport:
    """Write every sample's payloads as ordinary files below the new folder `out`.

    Pictures get the name they had in the source: JPEGs at their true size and with the same
    pixels, other files byte for byte. Arrays become `.npy`, bytes and JSON files of their own;
    numbers and texts go to `labels.csv`. Raises `UsageError` when `out` exists and is not empty,
    unless an interrupted export of this dataset has left it: that is repeated. Damaged samples
    raise `CorruptDataset`, or are left out when `on_error` is "skip".

        export_dataset("photos.slip", "photos-again")
    """
    if on_error not in ("raise", "skip"):
        raise UsageError(f'on_error is {on_error!r}, expected "raise" or "skip".')
    store = Store(Path(path))
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _claim(folder, str(store.manifest.crc32c))
        report = _Export(store, folder, skip=on_error == "skip").run(progress)
        (folder / _MARK_NAME).unlink()
        return report
    except OSError as error:
        raise StorageError(f"Cannot write {error.filename or folder}: {error.strerror}.") from error


def _claim(folder: Path, mark: str) -> None:
    """Mark the folder as an export of this dataset. Raises `UsageError` where it is not free."""
    path = folder / _MARK_NAME
    if any(folder.iterdir()) and not (path.is_file() and path.read_text() == mark):
        raise UsageError(f"{folder} is not empty. Export into a new folder.")
    path.write_text(mark)


class _Export:
    """One export: which names are taken, and what was written."""

    def __init__(self, store: Store, folder: Path, *, skip: bool) -> None:
        self.store = store
        self.folder = folder
        self.skip = skip
        self.taken: set[str] = set()
        self.made: set[Path] = set()
        self.renamed: list[str] = []
        self.skipped: list[str] = []
        self.bytes = 0
        key = store.numbers.get("key")
        self.key = key if key is not None and store.fields[key].kind == "text" else None
        files = [n for n, spec in enumerate(store.fields) if spec.kind not in (*SCALARS, "text")]
        self.files = files
        self.columns = [n for n in range(len(store.fields)) if n not in files and n != self.key]

    def run(self, progress: Callable[[int, int], None] | None) -> ExportReport:
        """Write all samples."""
        table = self.folder / TABLE_NAME if self.columns else None
        reserved = {TABLE_NAME, _MARK_NAME}
        self.taken |= reserved
        rows = self._samples(progress)
        if table is None:
            for _ in rows:
                pass
        else:
            with table.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["file", *(self.store.fields[n].name for n in self.columns)])
                writer.writerows(rows)
        files = len(self.taken) - len(reserved)
        return ExportReport(files, self.bytes, table, self.renamed, self.skipped)

    def _samples(self, progress: Callable[[int, int], None] | None) -> Iterator[list[Any]]:
        for sample in range(self.store.samples):
            try:
                row = self._sample(sample)
            except CorruptDataset as error:
                if not self.skip:
                    raise
                self.skipped.append(f"sample {sample}: {error}")
            else:
                yield row
            if progress is not None:
                progress(sample + 1, self.store.samples)

    def _sample(self, sample: int) -> list[Any]:
        """Read all of a sample before its first file is written: it comes whole or not at all."""
        shard, local = self.store.find(sample)
        base = self._base(shard, local, sample)
        cells = [self._cell(shard, local, number) for number in self.columns]
        files = [
            self._file(shard, local, number, base, sample, first=position == 0)
            for position, number in enumerate(self.files)
        ]
        names = [self._put(name, data, sample) for name, data in files]
        return [names[0] if names else base, *cells]

    def _base(self, shard: Shard, local: int, sample: int) -> str:
        if self.key is None:
            return f"{sample:08d}"
        key = str(shard.payload(self.key, local), "utf-8", "replace")
        path = PurePosixPath(key)
        unsafe = path.is_absolute() or ".." in path.parts or not path.parts or "\0" in key
        if unsafe:
            # A dataset from elsewhere must not write outside of the folder.
            raise CorruptDataset(
                "key would lead out of the folder", where=f"sample {sample}", got=ascii(key)[:200]
            )
        return str(path)

    def _file(
        self, shard: Shard, local: int, number: int, base: str, sample: int, *, first: bool
    ) -> tuple[str, bytes | memoryview]:
        spec = self.store.fields[number]
        payload = shard.payload(number, local)
        if spec.kind in PICTURES:
            data, suffix = _picture(shard, number, local, payload, sample)
            has_suffix = first and "." in PurePosixPath(base).name
            name = base if has_suffix else _join(base, spec, suffix, first=first)
        else:
            data, suffix = _plain(spec, payload)
            name = _join(base, spec, suffix, first=first and self.key is None)
        return name, data

    def _put(self, name: str, data: bytes | memoryview, sample: int) -> str:
        if name in self.taken:
            self.renamed.append(name)
            path, number = PurePosixPath(name), sample
            while name in self.taken:
                name = str(path.with_name(f"{path.stem}-{number}{path.suffix}"))
                number += 1
        target = self.folder / name
        if target.parent not in self.made:
            target.parent.mkdir(parents=True, exist_ok=True)
            self.made.add(target.parent)
        target.write_bytes(data)
        self.taken.add(name)
        self.bytes += len(data)
        return name

    def _cell(self, shard: Shard, local: int, number: int) -> object:
        spec = self.store.fields[number]
        if spec.kind == "text":
            return str(shard.payload(number, local), "utf-8", "replace")
        value = shard.column(number, "value")[local].item()
        classes = self.store.manifest.classes
        if spec.name == "label" and classes is not None and 0 <= value < len(classes):
            return classes[value]
        return value


def _picture(
    shard: Shard, number: int, local: int, payload: memoryview, sample: int
) -> tuple[bytes | memoryview, str]:
    if shard.column(number, "coding")[local] == 1:
        try:
            return _native.export_jpeg(payload), ".jpg"
        except (ValueError, RuntimeError) as error:
            raise CorruptDataset(f"bad tile record: {error}", where=f"sample {sample}") from None
    head = bytes(payload[:12])
    if head[:4] == b"RIFF" and head[8:] == b"WEBP":
        return payload, ".webp"
    return payload, next((suffix for magic, suffix in _SUFFIXES if head.startswith(magic)), ".img")


def _plain(spec: Field, payload: memoryview) -> tuple[bytes | memoryview, str]:
    if spec.kind in ("array", "tokens"):
        out = io.BytesIO()
        np.save(out, decode_value(spec, payload, spec.name), allow_pickle=False)
        return out.getvalue(), ".npy"
    return payload, ".json" if spec.kind == "json" else ".bin"


def _join(base: str, spec: Field, suffix: str, *, first: bool) -> str:
    return base + suffix if first else f"{base}.{spec.name}{suffix}"
