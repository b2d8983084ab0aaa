"""What is inside a dataset, in numbers."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream.store.reader import Store
from slipstream.store.schema import PICTURES, SCALARS
from slipstream.store.shard import Shard


@dataclass(frozen=True)
class PictureStats:
    """Sizes of the pictures of one field; widths and heights as (least, median, most)."""

    count: int
    tile_records: int
    width: tuple[int, int, int]
    height: tuple[int, int, int]
    mean_megapixels: float
    turned: int


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset's facts. `field_bytes` counts payload bytes, `kept` JPEGs that stayed files, by
    reason.
    """

    path: Path
    samples: int
    shards: int
    bytes: int
    fields: list[dict[str, Any]]
    field_bytes: dict[str, int]
    pictures: dict[str, PictureStats]
    classes: tuple[str, ...] | None
    made_by: dict[str, Any]
    kept: dict[str, int] = field(default_factory=dict)
    skipped: list[dict[str, str]] = field(default_factory=list)


def describe_dataset(path: str | Path) -> DatasetInfo:
    """Read the index of every shard and sum it up. Raises `CorruptDataset`.

    print(describe_dataset("train.slip").samples)
    """
    store = Store(Path(path))
    kept: Counter[str] = Counter()
    skipped: list[dict[str, str]] = []
    shards = [store.shard(number) for number in range(len(store.manifest.shards))]
    for shard in shards:
        notes = shard.notes()
        kept.update(str(entry["reason"]) for entry in notes.get("kept", ()))
        skipped += notes.get("skipped", ())
    payloads = [n for n, spec in enumerate(store.fields) if spec.kind not in SCALARS]
    return DatasetInfo(
        path=store.folder,
        samples=store.samples,
        shards=len(shards),
        bytes=sum(entry.bytes for entry in store.manifest.shards),
        fields=[spec.to_json() for spec in store.fields],
        field_bytes={store.fields[n].name: int(_join(shards, n, "length").sum()) for n in payloads},
        pictures={
            spec.name: _describe_pictures(shards, n)
            for n, spec in enumerate(store.fields)
            if spec.kind in PICTURES
        },
        classes=store.manifest.classes,
        made_by=store.manifest.made_by,
        kept=dict(kept),
        skipped=skipped,
    )


def _join(shards: list[Shard], number: int, name: str) -> npt.NDArray[Any]:
    parts = [shard.column(number, name) for shard in shards]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


def _describe_pictures(shards: list[Shard], number: int) -> PictureStats:
    widths, heights = _join(shards, number, "width"), _join(shards, number, "height")
    pixels = widths.astype(np.float64) * heights
    return PictureStats(
        count=len(widths),
        tile_records=int(_join(shards, number, "coding").sum()),
        width=_spread(widths),
        height=_spread(heights),
        mean_megapixels=float(pixels.mean()) / 1e6 if len(pixels) else 0.0,
        turned=int((_join(shards, number, "orientation") > 1).sum()),
    )


def _spread(values: npt.NDArray[Any]) -> tuple[int, int, int]:
    if len(values) == 0:
        return (0, 0, 0)
    return int(values.min()), int(np.median(values)), int(values.max())
