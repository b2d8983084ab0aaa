"""Packing: a source in, a dataset folder out. Can be killed at any moment and repeated."""

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import slipstream
from slipstream.cpu import usable_cores
from slipstream.errors import BadSource, UsageError
from slipstream.pack.arguments import check_arguments, check_options
from slipstream.pack.encode import Sample, encode_items
from slipstream.pack.pictures import PictureOptions, stored_field
from slipstream.pack.plan import (
    Plan,
    Workplace,
    check_destination,
    is_append_done,
    open_workplace,
    shards_of,
)
from slipstream.pack.sources.source import Source
from slipstream.pack.writer import ShardWriter, storage_errors, temporary_path
from slipstream.store.manifest import Manifest, ShardEntry, check_limits
from slipstream.store.reader import Store, read_manifest
from slipstream.store.schema import PICTURES, Field

DEFAULT_SHARD_BYTES = 256 << 20
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class PackReport:
    """What a pack has done. Counts are of the whole pack, also of what an interrupted run had done.

    `kept` counts JPEGs that stayed files, by reason; `skipped` lists items left out, with key and
    reason; `continued` is the number of items that an earlier run had done. Of JPEGs with an EXIF
    orientation, `turned` were turned upright and `unturned` were not. `trailing` JPEGs had more
    behind their end, which is not kept.
    """

    path: Path
    samples: int
    shards: int
    packed_bytes: int
    source_bytes: int | None
    kept: dict[str, int] = field(default_factory=dict)
    skipped: list[dict[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    continued: int = 0
    seconds: float = 0.0
    fields: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    turned: int = 0
    unturned: int = 0
    trailing: int = 0


def pack_dataset(
    dataset: Any,
    dst: str | Path,
    *,
    fields: Sequence[str] | Mapping[str, str] | None = None,
    workers: int = 0,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    on_error: str = "raise",
) -> PackReport:
    """Pack any torch Dataset into the folder `dst`.

    Pictures are stored without loss, tensors and arrays as arrays, lists and dicts as JSON. An
    `ImageFolder` or its like is packed from its files, so that JPEGs stay JPEGs; its transforms do
    not take part. `fields` names what a sample holds, in order or by key: `["x", "y"]`, or `{"x":
    "ragged"}` with a kind for each: `auto`, `ragged` (arrays of any size), `array`, `jpeg` and
    `image` (bytes of a file), `bytes`, `text`, `json`, `int`, `float`. `workers` processes make
    the samples, 0 for none; the packed bytes do not depend on it. `on_error` is "raise" or "skip".
    Interrupted and repeated, it goes on where it was, unless the dataset is iterable.

    >>> import tempfile, slipstream
    >>> pairs = [(k, k * k) for k in range(5)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = slipstream.pack_dataset(pairs, f"{folder}/a.slip", fields=["x", "square"])
    ...     print(report.samples, slipstream.open_dataset(f"{folder}/a.slip")[3])
    5 {'x': 3, 'square': 9}
    """
    from slipstream.pack.sources.torch_dataset import open_torch

    check_arguments(dataset, Path(dst), shard_bytes, workers)
    source = open_torch(dataset, fields=fields, workers=workers)
    for remark in source.remarks:
        warnings.warn(f"{remark[0].upper()}{remark[1:]}.", stacklevel=2)
    return pack_source(
        source, dst, shard_bytes=shard_bytes, workers=workers or 1, on_error=on_error
    )


def pack_source(
    source: Source,
    dst: str | Path,
    *,
    pictures: PictureOptions | None = None,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    workers: int | None = None,
    on_error: str = "raise",
    append: bool = False,
    progress: Progress | None = None,
) -> PackReport:
    """Pack a source into the folder `dst`, or append it to the dataset that is there.

    `workers` threads encode, by default as many as there are cores; bytes do not depend on it.
    `progress` is called with (items done, items in all or None). Raises `BadSource` for an item
    that cannot be packed when `on_error` is "raise", `StorageError` when the disk is full,
    `UsageError` when it cannot start.

        pack_source(open_source("photos"), "photos.slip")
    """
    started = time.monotonic()
    check_options(shard_bytes, workers, on_error)
    pictures = pictures or PictureOptions()
    if pictures.names and not any(spec.kind in PICTURES for spec in source.fields):
        raise UsageError(f"The source has no pictures: leave {' and '.join(pictures.names)} out.")
    # A link may lead to another disk: the work is done next to the dataset itself.
    dst = Path(dst).resolve() if append else Path(dst).absolute()
    job = _prepare(source, dst, pictures, shard_bytes, check_destination(dst, append=append))
    if append and is_append_done(job.plan):
        continued = source.length or 0
        return _report(job, source, continued, started, first=_first_of_append(dst))
    with storage_errors(job.plan.folder):
        place = open_workplace(job.plan)
    with closing(place):
        continued = place.next_item
        if place.is_whole:
            manifest = read_manifest(job.plan.folder)
            continued = source.length or manifest.samples
        else:
            threads = workers or usable_cores()
            new = _write_shards(job, source, place, threads, on_error, progress)
            if not place.finished and not new:
                raise UsageError("The source has no items: nothing to pack.")
            manifest = _manifest(job, [*shards_of(job.plan.base), *place.finished, *new])
        check_limits(manifest)
        with storage_errors(job.plan.folder):
            _move(place, manifest)
    return _report(job, source, continued, started, first=job.plan.first_number)


@dataclass(frozen=True)
class _Job:
    """What stays the same during a pack. `fields` are the source's, the plan has those stored."""

    plan: Plan
    fields: tuple[Field, ...]
    pictures: PictureOptions
    shard_bytes: int
    classes: tuple[str, ...] | None
    label_map: tuple[int, ...] | None


def _prepare(
    source: Source, dst: Path, pictures: PictureOptions, shard_bytes: int, base: Manifest | None
) -> _Job:
    fields = source.fields
    classes, label_map = source.classes, None
    if base is not None:
        fields = _fit_fields(fields, base.fields, pictures)
        classes, label_map = _fit_classes(classes, base.classes)
    stored = tuple(stored_field(spec, pictures) for spec in fields)
    options = {"shard_bytes": shard_bytes, **pictures.to_json()}
    made_by: dict[str, Any] = {
        "tool": "slipstream",
        "version": slipstream.__version__,
        "source": source.kind,
        "digest": source.digest,
        "options": options,
    }
    facts = {
        "source": source.kind,
        "source files": source.stamp,
        "fields": [spec.to_json() for spec in stored],
        "classes": list(classes) if classes is not None else None,
        "options": options,
        "version": slipstream.__version__,
        "base": base.crc32c if base is not None else None,
    }
    plan = Plan(dst, facts, stored, made_by, base, can_continue=source.length is not None)
    job = _Job(plan, fields, pictures, shard_bytes, classes, label_map)
    check_limits(_manifest(job, shards_of(base)))
    return job


def _fit_fields(
    fields: tuple[Field, ...], base: tuple[Field, ...], pictures: PictureOptions
) -> tuple[Field, ...]:
    """The source's fields, with the picture kinds of the dataset that is appended to."""
    if pictures.decoded and any(spec.kind in PICTURES for spec in base):
        raise UsageError(
            "Cannot append with --decoded: the dataset holds picture files, not pixels."
            " Append without --decoded, or pack into a new dataset."
        )
    swapped = tuple(stored_field(spec, PictureOptions(decoded=True)) for spec in fields)
    if swapped == base and swapped != fields and not pictures.decoded:
        raise UsageError(
            "Cannot append without --decoded: the dataset holds pixels, not picture files."
            " Append with --decoded, or pack into a new dataset."
        )
    fitted = []
    for spec, there in zip(fields, base, strict=False):
        is_swap = spec.kind in PICTURES and there.kind in PICTURES
        fitted.append(Field(spec.name, there.kind) if is_swap else spec)
    stored = tuple(stored_field(spec, pictures) for spec in fitted)
    if len(fields) != len(base) or stored != base:
        raise UsageError(
            f"Cannot append: the dataset has {_tell(base)}; the source gives {_tell(fields)}."
            " Append the same fields, or pack into a new dataset."
        )
    return tuple(fitted)


def _fit_classes(
    classes: tuple[str, ...] | None, base: tuple[str, ...] | None
) -> tuple[tuple[str, ...] | None, tuple[int, ...] | None]:
    """All classes, those of the dataset first, and the new number of each of the source's."""
    if (classes is None) != (base is None):
        raise UsageError("Cannot append: only one of dataset and source has class names.")
    if classes is None or base is None:
        return None, None
    known = [*base, *(name for name in classes if name not in set(base))]
    numbers = {name: number for number, name in enumerate(known)}
    return tuple(known), tuple(numbers[name] for name in classes)


def _tell(fields: Sequence[Field]) -> str:
    return ", ".join(" ".join(str(v) for v in spec.to_json().values()) for spec in fields)


def _write_shards(
    job: _Job,
    source: Source,
    place: Workplace,
    workers: int,
    on_error: str,
    progress: Progress | None,
) -> list[ShardEntry]:
    """Pack the items that are left."""
    number = job.plan.first_number + len(place.finished)
    filler = _Filler(job, number, place.next_item)
    if source.length is not None and place.next_item >= source.length:
        return []
    samples = encode_items(
        source.items(place.next_item),
        place.next_item,
        job.fields,
        job.pictures,
        workers=workers,
        label_map=job.label_map,
    )
    with closing(samples), closing(filler):
        for sample in samples:
            if sample.error and on_error == "raise":
                raise BadSource(
                    f"{sample.key}: {sample.error}."
                    ' Use --on-error skip (on_error="skip") to leave such items out.'
                )
            with storage_errors(job.plan.folder):
                filler.add(sample)
            if progress is not None:
                progress(sample.item + 1, source.length)
        with storage_errors(job.plan.folder):
            return filler.finish()


class _Filler:
    """Puts samples into shards and decides where one ends."""

    def __init__(self, job: _Job, number: int, first_item: int) -> None:
        self._job = job
        self._number = number
        self._next_item = first_item
        self._writer: ShardWriter | None = None
        self._skipped: list[dict[str, str]] = []
        self._late: list[dict[str, str]] = []
        self._done: list[ShardEntry] = []

    def add(self, sample: Sample) -> None:
        """Store a sample, or note that it was left out."""
        if sample.error:
            self._late.append({"key": sample.key, "reason": sample.error})
            return
        writer = self._writer
        if writer is not None and writer.is_full_for(sample.values, self._job.shard_bytes):
            # Items left out since the last sample are the next shard's: a continued run meets them
            # again.
            self._end_shard(self._next_item)
        if self._writer is None:
            self._writer = self._open()
        self._skipped += self._late
        self._late.clear()
        self._writer.add(sample.values)
        self._next_item = sample.item + 1

    def finish(self) -> list[ShardEntry]:
        """End the last shard; it also takes the items left out at the end."""
        end = self._next_item + len(self._late)
        self._skipped += self._late
        self._late.clear()
        if self._writer is not None:
            self._end_shard(end)
        elif self._skipped and not self._done:
            first = self._skipped[0]
            raise BadSource(
                f"All {len(self._skipped)} items left to pack were bad, the first one:"
                f" {first['key']}: {first['reason']}."
            )
        return self._done

    def close(self) -> None:
        """Leave no temporary file behind."""
        if self._writer is not None:
            self._writer.abort()
        # Ctrl-C may have come after the file and before its writer were there.
        temporary_path(self._job.plan.folder, self._number).unlink(missing_ok=True)

    def _open(self) -> ShardWriter:
        plan = self._job.plan
        return ShardWriter(plan.folder, self._number, plan.fields, first_item=self._next_item)

    def _end_shard(self, end_item: int) -> None:
        assert self._writer is not None
        entry = self._writer.finish(end_item=end_item, skipped=self._skipped)
        self._done.append(entry)
        self._number += 1
        self._skipped = []
        self._writer = None


def _manifest(job: _Job, shards: Sequence[ShardEntry]) -> Manifest:
    made_by, base = job.plan.made_by, job.plan.base
    if base is not None:
        before = base.made_by.get("appended", [])
        appended = [*before, made_by] if isinstance(before, list) else [made_by]
        made_by = {**base.made_by, "appended": appended}
    return Manifest(job.plan.fields, tuple(shards), job.classes, made_by)


def _move(place: Workplace, manifest: Manifest) -> None:
    if place.is_whole and place.plan.base is not None:
        place.finish_append(manifest)
    else:
        place.commit(manifest)


def _first_of_append(dst: Path) -> int:
    """Number of the first shard of the last append: items are counted from 0 in each."""
    store = Store(dst)
    number = len(store.manifest.shards) - 1
    while number > 0 and store.shard(number).notes()["source"][0] != 0:
        number -= 1
    return number


def _report(job: _Job, source: Source, continued: int, started: float, *, first: int) -> PackReport:
    """Count what the notes of the new shards say, those from `first` on."""
    store = Store(job.plan.dst)
    kept: Counter[str] = Counter()
    skipped: list[dict[str, str]] = []
    turned = unturned = trailing = 0
    pictures = [n for n, spec in enumerate(store.fields) if spec.kind in PICTURES]
    numbers = range(first, len(store.manifest.shards))
    for number in numbers:
        shard = store.shard(number)
        notes = shard.notes()
        turned += notes.get("turned", 0)
        trailing += notes.get("trailing", 0)
        for field_number in pictures:
            is_record = shard.column(field_number, "coding") == 1
            is_askew = shard.column(field_number, "orientation") > 1
            unturned += int((is_record & is_askew).sum())
        kept.update(entry["reason"] for entry in notes["kept"])
        skipped += notes["skipped"]
    entries = [store.manifest.shards[number] for number in numbers]
    return PackReport(
        path=job.plan.dst,
        samples=sum(entry.samples for entry in entries),
        shards=len(entries),
        packed_bytes=sum(entry.bytes for entry in entries),
        source_bytes=source.total_bytes,
        kept=dict(kept),
        skipped=skipped,
        remarks=list(source.remarks),
        continued=continued,
        seconds=time.monotonic() - started,
        fields=tuple(spec.name for spec in store.fields),
        classes=store.manifest.classes,
        turned=turned,
        unturned=unturned,
        trailing=trailing,
    )
