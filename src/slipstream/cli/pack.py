"""`slipstream pack SRC DST`"""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from slipstream.pack.pack import PackReport
    from slipstream.pack.pictures import PictureOptions
    from slipstream.pack.sources.source import Source

_SHOWN_CLASSES = 5


class OnError(str, Enum):
    """What to do with an item that cannot be packed."""

    STOP = "raise"
    SKIP = "skip"


def pack(
    src: Annotated[Path, typer.Argument(help="Folder of pictures, .tar shards, .npy or .npz.")],
    dst: Annotated[Path, typer.Argument(help="The dataset to make, for example train.slip.")],
    labels: Annotated[
        Path | None, typer.Option(help="CSV: file name, label, more columns.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Threads; by default all cores.")] = None,
    shard_size: Annotated[str, typer.Option(help="Size of a shard, such as 64MB.")] = "256MiB",
    on_error: Annotated[OnError, typer.Option(help="What to do with bad items.")] = OnError.STOP,
    append: Annotated[bool, typer.Option("--append", help="Add to the dataset at DST.")] = False,
    orient: Annotated[
        bool, typer.Option("--orient", help="Turn JPEGs upright where no pixel is lost.")
    ] = False,
    max_side: Annotated[
        int | None, typer.Option(help="Lossy: shrink pictures to this longer side.")
    ] = None,
    quality: Annotated[int | None, typer.Option(help="Lossy: JPEG quality, 1 to 100.")] = None,
    decoded: Annotated[
        bool, typer.Option("--decoded", help="Store pixels, not files: large, but no decoding.")
    ] = False,
    window: Annotated[int | None, typer.Option(help="Tokens in a window (1-D .npy).")] = None,
    stride: Annotated[int | None, typer.Option(help="Tokens from window to window.")] = None,
) -> None:
    """Pack a dataset for random access at memory speed; JPEGs lose nothing.

    Interrupted, the same command goes on where it was.
    """
    from slipstream.cli.progress import show_progress
    from slipstream.cli.sizes import parse_size
    from slipstream.pack.pack import pack_source
    from slipstream.pack.pictures import PictureOptions
    from slipstream.pack.plan import check_apart
    from slipstream.pack.sources.detect import open_source

    pictures = PictureOptions(orient=orient, max_side=max_side, quality=quality, decoded=decoded)
    source = open_source(src, labels=labels, window=window, stride=stride)
    check_apart(src, dst)
    with show_progress("packing", "samples") as progress:
        report = pack_source(
            source,
            dst,
            pictures=pictures,
            shard_bytes=parse_size(shard_size),
            workers=workers,
            on_error=on_error.value,
            append=append,
            progress=progress,
        )
    _print_report(report, pictures, appended=append)
    if decoded:
        _print_decoded(report, source)
    print(f"\nNext: slipstream verify {dst}")


def _print_report(report: "PackReport", pictures: "PictureOptions", *, appended: bool) -> None:
    from slipstream.cli.progress import format_bytes
    from slipstream.cli.text import group_reasons, say, say_items
    from slipstream.words import count_of

    size = format_bytes(report.packed_bytes)
    if report.source_bytes:
        size += f" ({report.packed_bytes / report.source_bytes - 1:+.1%} against the source)"
    shards = count_of(report.shards, "shard")
    added = "Added: " if appended else ""
    samples = count_of(report.samples, "sample")
    say(f"{added}{samples} in {shards}, {size}, {report.seconds:.1f} s")
    say(f"fields: {_tell_fields(report)}")
    if report.continued:
        say(f"Went on behind {report.continued:,} items of an interrupted pack.")
    if pictures.is_lossy:
        lossy = [name for name in pictures.names if name in ("--max-side", "--quality")]
        say(f"Lossy: {' and '.join(lossy)} changed pictures.")
    if pictures.orient:
        _print_turned(report)
    if report.trailing:
        jpegs = count_of(report.trailing, "JPEG")
        say(f"Left out: what stands behind the end of {jpegs} (a second picture, a video, …).")
    for remark in report.remarks:
        say(f"Note: {remark}.")
    for reason, count in group_reasons(report.kept).items():
        say(f"Kept as the files they were: {count_of(count, 'JPEG')} ({reason}).")
    if report.skipped:
        print(f"Skipped {count_of(len(report.skipped), 'item')}:")
    say_items(report.skipped, "; `slipstream info --json` lists all of them.")


def _tell_fields(report: "PackReport") -> str:
    parts = []
    for name in report.fields:
        if name == "label" and report.classes is not None:
            more = ", …" if len(report.classes) > _SHOWN_CLASSES else ""
            shown = ", ".join(report.classes[:_SHOWN_CLASSES]) + more
            plural = "class" if len(report.classes) == 1 else "classes"
            parts.append(f"{name} ({len(report.classes):,} {plural}: {shown})")
        else:
            parts.append(name)
    return ", ".join(parts)


def _print_turned(report: "PackReport") -> None:
    from slipstream.cli.text import say

    left = ""
    if report.unturned:
        left = (
            f"; {report.unturned:,} could not be turned without loss, as an edge does not lie on a"
            " block boundary"
        )
    if report.turned + report.unturned == 0:
        say("No JPEG had to be turned upright.")
        return
    say(f"Turned upright: {report.turned:,} of {report.turned + report.unturned:,} JPEGs{left}.")


def _print_decoded(report: "PackReport", source: "Source") -> None:
    from slipstream.cli.text import say
    from slipstream.pack.decoded import compare_reading

    cost = compare_reading(source, report.path)
    if cost is None:
        return
    more = f"{report.packed_bytes / report.source_bytes:.1f} x" if report.source_bytes else "?"
    say(
        f"Decoded: {more} the bytes of the files; a picture is read in {cost.read_s * 1e3:.2f} ms,"
        f" decoding its file takes {cost.decode_s * 1e3:.2f} ms"
        f" ({cost.decode_s / cost.read_s:.0f} x, {cost.pictures} pictures measured, warm cache)."
    )
