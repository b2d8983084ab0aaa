"""`slipstream export DST OUT`"""

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.pack import OnError

EXIT_FINDINGS = 1


def export(
    path: Annotated[Path, typer.Argument(help="A packed dataset.")],
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    on_error: Annotated[
        OnError, typer.Option(help="What to do with damaged samples.")
    ] = OnError.STOP,
) -> None:
    """Give ordinary files back: JPEGs with the same pixels, everything else as it was.

    Exits 1 when damaged samples were skipped.
    """
    from slipstream.cli.progress import format_bytes, show_progress
    from slipstream.cli.text import SHOWN_ITEMS, say
    from slipstream.pack.export import export_dataset
    from slipstream.words import count_of

    with show_progress("exporting", "samples") as progress:
        report = export_dataset(path, out, on_error=on_error.value, progress=progress)
    say(f"{count_of(report.files, 'file')}, {format_bytes(report.bytes)}, in {out}")
    if report.table is not None:
        say(f"Numbers and texts are in {report.table}")
    if report.renamed:
        names = count_of(len(report.renamed), "file")
        say(f"{names} would have had a name twice, and got the sample's number added")
    if report.skipped:
        print(f"Skipped {count_of(len(report.skipped), 'damaged sample')}:")
        for line in report.skipped[:SHOWN_ITEMS]:
            say(line, indent="  ")
        if len(report.skipped) > SHOWN_ITEMS:
            print("  … `slipstream verify` lists all of them.")
        raise typer.Exit(EXIT_FINDINGS)
