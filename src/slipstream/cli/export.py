"""`slipstream export DST OUT`"""

from pathlib import Path
from typing import Annotated

import typer


def export(
    path: Annotated[Path, typer.Argument(help="A packed dataset.")],
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
) -> None:
    """Give ordinary files back: JPEGs with the same pixels, everything else as it was."""
    from slipstream.cli.progress import count_of, format_bytes, show_progress
    from slipstream.pack.export import export_dataset

    with show_progress("exporting", "samples") as progress:
        report = export_dataset(path, out, progress=progress)
    print(f"{count_of(report.files, 'file')}, {format_bytes(report.bytes)}, in {out}")
    if report.table is not None:
        print(f"Numbers and texts are in {report.table}")
    if report.renamed:
        names = count_of(len(report.renamed), "file")
        print(f"{names} would have had a name twice, and got the sample's number added")
