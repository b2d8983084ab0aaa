"""`slipstream compare A B`: what changed between two reports of the doctor."""

from pathlib import Path
from typing import Annotated

import typer

EXIT_FINDINGS = 1


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The report.json of the run before.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The report.json of the run after.")],
    tolerance: Annotated[
        str, typer.Option(help="Difference of a step that does not count: 5% or 0.05.")
    ] = "5%",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all details.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if B is slower or has new findings.")
    ] = False,
) -> None:
    """Compare two reports of slipstream doctor: what became faster, slower, better, worse.

    A difference counts if it is more than the tolerance and more than the runs
    differ from step to step.

    \b
    slipstream doctor --json before.json train.py
    slipstream doctor --json after.json train.py   (changed)
    slipstream compare before.json after.json
    slipstream compare --check --tolerance 10% before.json after.json   (in CI)
    """
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
