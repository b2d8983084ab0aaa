"""Items to encoded samples, in batches, one batch ahead of the writer."""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.pack.fields import Encoded, encode_value
from slipstream.pack.pictures import PictureOptions, encode_pictures
from slipstream.pack.sources.source import Item
from slipstream.store.schema import PICTURES, Field

# Small enough to write one batch while the next is encoded, large enough to keep threads busy.
_BATCH_ITEMS = 64
_BATCH_ITEMS_PER_WORKER = 16
_BATCH_BYTES = 32 << 20
_UNLABELLED = -1


@dataclass(frozen=True, slots=True)
class Sample:
    """An item of the source, encoded; or `error`, the reason why it cannot be."""

    item: int
    key: str
    values: tuple[Encoded, ...] = ()
    error: str = ""


def encode_items(
    items: Iterator[Item],
    start: int,
    fields: Sequence[Field],
    options: PictureOptions,
    *,
    workers: int,
    label_map: Sequence[int] | None = None,
) -> Generator[Sample, None, None]:
    """Samples in the order of the items. `fields` are those of the source.

    The next batch is encoded while the caller writes the last one; results do not depend on
    `workers`.
    """
    batch_items = max(_BATCH_ITEMS, _BATCH_ITEMS_PER_WORKER * workers)
    encoder = _Encoder(tuple(fields), options, workers, label_map)
    pending: Future[list[Sample]] | None = None
    with ThreadPoolExecutor(1) as ahead, encoder.pool:
        try:
            for first, batch in _batches(items, start, batch_items):
                running = ahead.submit(encoder.encode, first, batch)
                if pending is not None:
                    yield from pending.result()
                pending = running
            if pending is not None:
                yield from pending.result()
        finally:
            if pending is not None:
                pending.cancel()


def _batches(
    items: Iterator[Item], start: int, batch_items: int
) -> Iterator[tuple[int, list[Item]]]:
    """Items in groups that are bounded in number and bytes, with the number of the first."""
    batch: list[Item] = []
    batch_bytes = 0
    for item in items:
        batch.append(item)
        batch_bytes += sum(_value_bytes(value) for value in item.values)
        if len(batch) >= batch_items or batch_bytes >= _BATCH_BYTES:
            yield start, batch
            start += len(batch)
            batch, batch_bytes = [], 0
    if batch:
        yield start, batch


def _value_bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    return len(value) if isinstance(value, bytes | str) else 0


class _Encoder:
    """Encodes batches; pictures go to the native engine and to a pool of Pillow threads."""

    def __init__(
        self,
        fields: tuple[Field, ...],
        options: PictureOptions,
        workers: int,
        label_map: Sequence[int] | None,
    ) -> None:
        self.fields = fields
        self.options = options
        self.workers = workers
        self.label_map = label_map
        self.pool = ThreadPoolExecutor(workers)

    def encode(self, first: int, batch: list[Item]) -> list[Sample]:
        errors = {k: item.error for k, item in enumerate(batch) if item.error}
        columns: list[dict[int, Encoded]] = []
        for number, field in enumerate(self.fields):
            wanted = [k for k in range(len(batch)) if k not in errors]
            values = [batch[k].values[number] for k in wanted]
            made = self._encode_column(field, values)
            columns.append({})
            for k, value in zip(wanted, made, strict=True):
                if isinstance(value, str):
                    errors[k] = value
                else:
                    columns[number][k] = value
        return [
            Sample(first + k, item.key, error=errors[k])
            if k in errors
            else Sample(first + k, item.key, tuple(column[k] for column in columns))
            for k, item in enumerate(batch)
        ]

    def _encode_column(self, field: Field, values: list[Any]) -> Sequence[Encoded | str]:
        """One encoded value or reason per value."""
        if field.kind in PICTURES:
            return encode_pictures(values, field.kind, self.options, self.pool, self.workers)
        is_label = field.name == "label" and self.label_map is not None
        made: list[Encoded | str] = []
        for value in values:
            try:
                encoded = encode_value(field, value)
                made.append(self._new_label(encoded) if is_label else encoded)
            except (ValueError, TypeError, OverflowError) as error:
                made.append(str(error) or type(error).__name__)
        return made

    def _new_label(self, label: Encoded) -> int:
        """The number that a class of the source has in the dataset; unlabelled stays unlabelled."""
        assert self.label_map is not None
        if label == _UNLABELLED:
            return _UNLABELLED
        if not isinstance(label, int) or not 0 <= label < len(self.label_map):
            last = len(self.label_map) - 1
            raise ValueError(f"label {label}: expected 0 to {last}, or {_UNLABELLED} for none")
        return self.label_map[label]
