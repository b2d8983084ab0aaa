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

_LOSSY = ("max_side", "quality")


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
    reason; `kept_items` lists them. `lossy` has a line for each part that was packed with loss.
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
    kept_items: list[dict[str, str]] = field(default_factory=list)
    lossy: list[str] = field(default_factory=list)


def describe_dataset(path: str | Path) -> DatasetInfo:
    """Read the index of every shard and sum it up. Raises `CorruptDataset`.

    print(describe_dataset("train.slip").samples)
    """
    store = Store(Path(path))
    kept: list[dict[str, str]] = []
    skipped: list[dict[str, str]] = []
    shards = [store.shard(number) for number in range(len(store.manifest.shards))]
    for shard in shards:
        notes = shard.notes()
        kept += [
            {"key": shard.key(entry["sample"]), "reason": str(entry["reason"])}
            for entry in notes.get("kept", ())
        ]
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
        kept=dict(Counter(entry["reason"] for entry in kept)),
        skipped=skipped,
        kept_items=kept,
        lossy=_describe_loss(store.manifest.made_by),
    )


def _describe_loss(made_by: dict[str, Any]) -> list[str]:
    """A line for each part, the first or an appended one, whose pictures were shrunk."""
    appended = made_by.get("appended")
    parts = [made_by, *(appended if isinstance(appended, list) else ())]
    lines = []
    for number, part in enumerate(parts):
        options = part.get("options") if isinstance(part, dict) else None
        used = options if isinstance(options, dict) else {}
        told = ", ".join(f"{name} {used[name]}" for name in _LOSSY if name in used)
        if told:
            lines.append(f"{told}, in appended part {number}" if number else told)
    return lines


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
