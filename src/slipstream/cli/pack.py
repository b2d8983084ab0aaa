"""`slipstream pack SRC DST`"""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from slipstream.pack.pack import PackReport
    from slipstream.pack.pictures import PictureOptions
    from slipstream.pack.sources.source import Source

_SHOWN_ITEMS = 20


class OnError(str, Enum):
    """What to do with an item that cannot be packed."""

    STOP = "raise"
    SKIP = "skip"


def pack(  # noqa: PLR0913, PLR0917  one parameter per option of the command
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
    from slipstream.pack.sources.detect import open_source

    pictures = PictureOptions(orient=orient, max_side=max_side, quality=quality, decoded=decoded)
    source = open_source(src, labels=labels, window=window, stride=stride)
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
    _print_report(report, pictures)
    if decoded:
        _print_decoded(report, source)
    print(f"\nNext: slipstream verify {dst}")


def _print_report(report: "PackReport", pictures: "PictureOptions") -> None:
    from slipstream.cli.progress import count_of, format_bytes

    size = format_bytes(report.packed_bytes)
    if report.source_bytes:
        size += f" ({report.packed_bytes / report.source_bytes - 1:+.1%} against the source)"
    shards = count_of(report.shards, "shard")
    print(f"{count_of(report.samples, 'sample')} in {shards}, {size}, {report.seconds:.1f} s")
    if report.continued:
        print(f"Went on behind {report.continued:,} items of an interrupted pack.")
    if pictures.is_lossy:
        print("Lossy: --max-side and --quality changed pictures.")
    for remark in report.remarks:
        print(f"Note: {remark}.")
    for reason, count in sorted(report.kept.items()):
        print(f"Kept as the files they were: {count_of(count, 'JPEG')} ({reason}).")
    if report.skipped:
        print(f"Skipped {count_of(len(report.skipped), 'item')}:")
    for entry in report.skipped[:_SHOWN_ITEMS]:
        print(f"  {entry['key']}: {entry['reason']}")
    if len(report.skipped) > _SHOWN_ITEMS:
        print("  … `slipstream info --json` lists all of them.")


def _print_decoded(report: "PackReport", source: "Source") -> None:
    from slipstream.pack.decoded import compare_reading

    cost = compare_reading(source, report.path)
    if cost is None:
        return
    more = f"{report.packed_bytes / report.source_bytes:.1f} x" if report.source_bytes else "?"
    print(
        f"Decoded: {more} the bytes of the files; a picture is read in {cost.read_s * 1e3:.2f} ms,"
        f" decoding its file takes {cost.decode_s * 1e3:.2f} ms"
        f" ({cost.decode_s / cost.read_s:.0f} x, {cost.pictures} pictures measured, warm cache)."
    )
