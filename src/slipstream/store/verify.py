"""Check every byte of a dataset and say which samples a damage touches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream import _native
from slipstream.cpu import usable_cores
from slipstream.errors import CorruptDataset
from slipstream.store.format import ENTRY_BYTES, HEADER_BYTES
from slipstream.store.manifest import MANIFEST_NAME, Manifest, is_canonical, parse_manifest
from slipstream.store.reader import read_manifest_bytes
from slipstream.store.schema import ALIGNMENT, PICTURES, SCALARS, SHARD_ITSELF
from slipstream.store.shard import Shard, open_shard
from slipstream.store.values import decode_value, ragged_shape

_CHUNK_SAMPLES = 1024


@dataclass(frozen=True, slots=True)
class Problem:
    """One damage: where it is, and the samples [first, end) of the dataset that it touches."""

    file: str
    what: str
    first: int = 0
    end: int = 0
    field: str = ""
    key: str = ""

    def __str__(self) -> str:
        """One line for people."""
        parts = [self.file]
        if self.end - self.first == 1:
            parts.append(f"sample {self.first}" + (f" ({self.key})" if self.key else ""))
        elif self.end > self.first:
            parts.append(f"samples {self.first} to {self.end - 1}")
        if self.field:
            parts.append(f'field "{self.field}"')
        return f"{', '.join(parts)}: {self.what}"


def verify_dataset(
    path: str | Path,
    *,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Problem]:
    """Check manifest, headers, footers, columns, payloads and the gaps between them.

    Yields problems as they are found; none means that every byte is as it was written.
    `progress` is called with numbers of bytes that were checked since the last call.

        for problem in verify_dataset("train.slip"):
            print(problem)
    """
    folder = Path(path)
    try:
        data = read_manifest_bytes(folder)
        manifest = parse_manifest(data)
    except CorruptDataset as error:
        yield Problem(MANIFEST_NAME, _reason(error))
        return
    if not is_canonical(data):
        yield Problem(MANIFEST_NAME, "not byte for byte as it was written", 0, manifest.samples)
    threads = usable_cores() if threads is None else threads
    first = 0
    for number, entry in enumerate(manifest.shards):
        yield from _verify_shard(folder, manifest, number, first, threads, progress)
        first += entry.samples


def _verify_shard(
    folder: Path,
    manifest: Manifest,
    number: int,
    first: int,
    threads: int,
    progress: Callable[[int], None] | None,
) -> Iterator[Problem]:
    entry = manifest.shards[number]
    report = progress if progress is not None else _ignore
    try:
        shard = open_shard(folder / entry.file, number, manifest.fields, entry=entry)
    except CorruptDataset as error:
        yield Problem(entry.file, _reason(error), first, first + entry.samples)
        report(entry.bytes)
        return
    check = _ShardCheck(shard, entry.file, first)
    yield from check.index()
    done = 0
    for problem, checked_bytes in check.payloads(threads):
        if problem is not None:
            yield problem
        done += checked_bytes
        report(checked_bytes)
    yield from check.gaps()
    report(max(0, entry.bytes - done))


class _ShardCheck:
    """The checks of one open shard. `bad_fields` are those whose index cannot be relied on."""

    def __init__(self, shard: Shard, file: str, first: int) -> None:
        self.shard = shard
        self.file = file
        self.first = first
        self.bad_fields: set[int] = set()
        names = [field.name if field.kind == "text" else "" for field in shard.fields]
        self.key_field = names.index("key") if "key" in names else None

    def index(self) -> Iterator[Problem]:
        """Columns, notes, and the gaps between them."""
        shard = self.shard
        for (field, id_), _ in shard.columns.items():
            try:
                if field == SHARD_ITSELF:
                    _check_notes(shard.notes(), shard.samples)
                else:
                    shard.check_column(field, id_)
            except CorruptDataset as error:
                name = "" if field == SHARD_ITSELF else shard.fields[field].name
                self.bad_fields.add(field)
                yield self._whole(_reason(error), name)
        for number, spec in enumerate(shard.fields):
            if number in self.bad_fields or spec.kind in SCALARS:
                continue
            try:
                shard.column(number, "offset")
            except CorruptDataset as error:
                self.bad_fields.add(number)
                yield self._whole(f"{error.where}: {_reason(error)}", spec.name)
        yield from self._index_gaps()

    def payloads(self, threads: int) -> Iterator[tuple[Problem | None, int]]:
        """Every payload's CRC and inner structure; yields (problem or None, bytes checked)."""
        shard = self.shard
        for number, field in enumerate(shard.fields):
            if number in self.bad_fields or field.kind in SCALARS:
                continue
            offsets, lengths = shard.column(number, "offset"), shard.column(number, "length")
            stored = shard.column(number, "crc")
            for start in range(0, shard.samples, _CHUNK_SAMPLES):
                part = slice(start, start + _CHUNK_SAMPLES)
                found = _native.crc32c_many(shard.map, offsets[part], lengths[part], threads)
                wrong = found != stored[part]
                for local in (start + np.flatnonzero(wrong)).tolist():
                    yield self._one(local, "payload checksum does not match", field.name), 0
                for local in (start + np.flatnonzero(~wrong)).tolist():
                    what = self._structure(number, local)
                    if what:
                        yield self._one(local, what, field.name), 0
                yield None, int(lengths[part].sum())

    def gaps(self) -> Iterator[Problem]:
        """Bytes of the data region that belong to no payload must be zero, and payloads apart."""
        shard = self.shard
        numbers = [n for n, field in enumerate(shard.fields) if field.kind not in SCALARS]
        if self.bad_fields.intersection(numbers):
            return
        starts, ends, fields, samples = _intervals(shard, numbers)
        has_bytes = ends > starts
        yield from self._overlaps(
            starts[has_bytes], ends[has_bytes], fields[has_bytes], samples[has_bytes]
        )
        # Empty payloads count here: the padding before one belongs to it.
        covered = _covered(ends)
        for k in np.flatnonzero(starts > covered[:-1]).tolist():
            if shard.map[int(covered[k]) : int(starts[k])].any():
                yield self._one(int(samples[k]), "bytes before the payload are not zero")
        end, footer = int(covered[-1]), shard.footer
        if end != footer.data_end:
            yield self._whole(f"payloads end at byte {end}, data_end is {footer.data_end}")
        if shard.map[min(end, footer.data_end) : footer.index_offset].any():
            what = "bytes after the last payload are not zero"
            yield self._one(shard.samples - 1, what) if shard.samples else self._whole(what)

    def _overlaps(
        self,
        starts: npt.NDArray[Any],
        ends: npt.NDArray[Any],
        fields: npt.NDArray[Any],
        samples: npt.NDArray[Any],
    ) -> Iterator[Problem]:
        specs = self.shard.fields
        for k in np.flatnonzero(starts < _covered(ends)[:-1]).tolist():
            spec = specs[int(fields[k])]
            if k == 0 or fields[k] != fields[k - 1] or spec.kind != "tokens":
                yield self._one(int(samples[k]), "payload overlaps another", spec.name)

    def _index_gaps(self) -> Iterator[Problem]:
        shard, footer = self.shard, self.shard.footer
        end = footer.index_offset + footer.columns * ENTRY_BYTES
        limits = [
            (column.offset, column.offset + column.bytes) for column in shard.columns.values()
        ]
        limits.append((footer.index_offset + footer.index_bytes, 0))
        for start, following in limits:
            if shard.map[end:start].any():
                yield self._whole(f"bytes {end} to {start} of the index are not zero")
            end = following

    def _structure(self, number: int, local: int) -> str:
        """What is wrong inside a payload whose CRC is right, or ''."""
        shard = self.shard
        field = shard.fields[number]
        start = int(shard.column(number, "offset")[local])
        data = memoryview(shard.map)[start : start + int(shard.column(number, "length")[local])]
        if field.is_aligned and start % ALIGNMENT and field.kind == "array":
            return f"array starts at byte {start}, not at a multiple of {ALIGNMENT}"
        try:
            if field.kind in PICTURES:
                return self._record(number, local, data)
            if field.kind in ("text", "json"):
                decode_value(field, data, "")
            elif field.kind == "array" and field.shape is None:
                ragged_shape(field, data, "")
        except CorruptDataset as error:
            return _reason(error)
        return ""

    def _record(self, number: int, local: int, data: memoryview) -> str:
        shard = self.shard
        if shard.column(number, "coding")[local] == 0:
            return ""
        try:
            found = tuple(_native.record_size(data))
        except ValueError as error:
            return f"tile record: {error}"
        told = tuple(int(shard.column(number, name)[local]) for name in ("width", "height"))
        return "" if found == told else f"tile record of {found} pixels, the index says {told}"

    def _key(self, local: int) -> str:
        if self.key_field is None or self.key_field in self.bad_fields:
            return ""
        try:
            return str(self.shard.payload(self.key_field, local), "utf-8")
        except (CorruptDataset, ValueError):
            return ""

    def _one(self, local: int, what: str, field: str = "") -> Problem:
        sample = self.first + local
        return Problem(self.file, what, sample, sample + 1, field, self._key(local))

    def _whole(self, what: str, field: str = "") -> Problem:
        return Problem(self.file, what, self.first, self.first + self.shard.samples, field)


def _covered(ends: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """How far the header and the payloads before each one reach; the last is of all of them."""
    return np.maximum.accumulate(np.concatenate(([np.uint64(HEADER_BYTES)], ends)))


def _intervals(shard: Shard, numbers: list[int]) -> tuple[npt.NDArray[Any], ...]:
    """Start, end, field and sample of every payload, in the order of the file."""
    empty = np.empty(0, dtype=np.uint64)
    starts = np.concatenate([empty, *(shard.column(n, "offset") for n in numbers)])
    lengths = np.concatenate([empty, *(shard.column(n, "length") for n in numbers)])
    fields = np.repeat(np.asarray(numbers, dtype=np.int64), shard.samples)
    samples = np.tile(np.arange(shard.samples, dtype=np.int64), len(numbers))
    order = np.lexsort((samples, lengths > 0, starts))
    starts = starts[order]
    return starts, starts + lengths[order], fields[order], samples[order]


def _check_notes(notes: dict[str, Any], samples: int) -> None:
    source = notes.get("source")
    good = isinstance(source, list) and [type(n) for n in source] == [int, int]
    good = good and all(isinstance(notes.get(name), list) for name in ("skipped", "kept"))
    for entry in notes["kept"] if good else ():
        good = good and isinstance(entry, dict) and type(entry.get("sample")) is int
        good = good and 0 <= entry["sample"] < samples
    if not good:
        raise CorruptDataset("notes are not as the format asks", expected="source, skipped, kept")


def _reason(error: CorruptDataset) -> str:
    """The message without the file's path, which the problem names by itself."""
    told = error.what
    if error.got:
        told += f": got {error.got}"
    if error.expected:
        told += f", expected {error.expected}"
    return told


def _ignore(checked_bytes: int) -> None:
    """Progress that nobody asked for."""
