"""`slipstream compare A B`"""

from pathlib import Path
from typing import Annotated

import typer

EXIT_FINDINGS = 1


def compare(
    a: Annotated[Path, typer.Argument(help="The report.json of the run before.")],
    b: Annotated[Path, typer.Argument(help="The report.json of the run after.")],
    tolerance: Annotated[
        str, typer.Option(help="Difference of a step that does not count, as 5% or 0.05.")
    ] = "5%",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all details.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if b is slower or has new findings.")
    ] = False,
) -> None:
    """Compare two reports of slipstream doctor: what became faster, slower, better, worse."""
    import json
    from dataclasses import asdict

    from slipstream.cli.sizes import parse_share
    from slipstream.doctor.compare import compare as compare_reports
    from slipstream.doctor.compare import load_report
    from slipstream.doctor.compare_text import comparison_text

    share = parse_share(tolerance)
    found = compare_reports(load_report(a), load_report(b), tolerance=share)
    if as_json:
        print(json.dumps({**asdict(found), "is_worse": found.is_worse}, indent=2))
    else:
        print(f"a: {a}\nb: {b}\n\n{comparison_text(found)}")
    if check and found.is_worse:
        raise typer.Exit(EXIT_FINDINGS)
