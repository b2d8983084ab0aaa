"""`slipstream info DST`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from slipstream.store.info import DatasetInfo


def info(
    path: Annotated[Path, typer.Argument(help="A packed dataset.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all details.")] = False,
) -> None:
    """Print what is inside a dataset: fields, counts, sizes, how it was made."""
    import json
    from dataclasses import asdict

    from slipstream.store.info import describe_dataset

    found = describe_dataset(path)
    if as_json:
        print(json.dumps({**asdict(found), "path": str(found.path)}, indent=2))
    else:
        _print_info(found)


def _print_info(found: "DatasetInfo") -> None:
    from slipstream.cli.progress import format_bytes
    from slipstream.cli.text import group_reasons, say, say_items
    from slipstream.words import count_of

    counts = f"{count_of(found.samples, 'sample')}, {count_of(found.shards, 'shard')}"
    say(f"{found.path}: {counts}, {format_bytes(found.bytes)}")
    print("Fields:")
    for spec in found.fields:
        extra = {k: v for k, v in spec.items() if k not in ("name", "kind")}
        parts = [spec["kind"], *(f"{k} {v}" for k, v in extra.items() if v is not None)]
        if spec["name"] in found.field_bytes:
            parts.append(format_bytes(found.field_bytes[spec["name"]]))
        say(f"{spec['name']}: {', '.join(parts)}", indent="  ")
    _print_pictures(found)
    if found.classes is not None:
        shown = ", ".join(found.classes[:8]) + (", …" if len(found.classes) > 8 else "")
        say(f"Classes: {len(found.classes)} ({shown})")
    say(f"Made by: {_tell(found.made_by)}")
    for line in found.lossy:
        say(f"Lossy: pictures were packed with {line}")
    for reason, count in group_reasons(found.kept).items():
        say(f"Kept as the files they were: {count_of(count, 'JPEG')} ({reason})")
    say_items(found.kept_items, " (--json lists them)")
    if found.skipped:
        skipped = count_of(len(found.skipped), "item")
        say(f"Skipped when it was packed: {skipped} (--json lists them)")


def _print_pictures(found: "DatasetInfo") -> None:
    from slipstream.cli.text import say

    for name, stats in found.pictures.items():
        spread = [
            f"{low} to {high} (median {mid})" for low, mid, high in (stats.width, stats.height)
        ]
        turned = f"; {stats.turned:,} have an EXIF orientation" if stats.turned else ""
        say(
            f'Pictures of "{name}": width {spread[0]}, height {spread[1]},'
            f" {stats.mean_megapixels:.2f} megapixels on average;"
            f" {stats.tile_records:,} of {stats.count:,} decode by tiles{turned}"
        )


def _tell(made_by: dict[str, object]) -> str:
    parts = [f"{made_by.get('tool', '?')} {made_by.get('version', '?')}"]
    parts.append(f"from {made_by.get('source', '?')}")
    options = made_by.get("options")
    if isinstance(options, dict):
        parts.append(", ".join(f"{name} {value}" for name, value in options.items()))
    appended = made_by.get("appended")
    if isinstance(appended, list):
        parts.append(f"with {len(appended)} appended")
    return "; ".join(parts)
