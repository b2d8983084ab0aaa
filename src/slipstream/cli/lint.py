"""`slipstream lint`: what in a model's architecture costs time, measured on this machine."""

from typing import Annotated

import typer

EXIT_FINDINGS = 1


def lint(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="package.module:name or path/to/file.py:name: a module, a class, or a function "
            "that makes one.",
            show_default=False,
        ),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[NAME=]SHAPE[:DTYPE[:LOW..HIGH]]",
            help="What the model is called with, one for each argument.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="Where to measure, such as cuda.", show_default="where the model is"),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="The longest that it may take, about.", min=1.0)
    ] = 60.0,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Leave a rule out; may be repeated.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all details.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if there is a finding.")
    ] = False,
) -> None:
    """Say what in a model's architecture costs time on this machine, in milliseconds.

    A call of the model is recorded, and layers of it are measured alone, in
    turns with layers of the same FLOPs that could stand in their place. The
    model is never changed. Its inputs are random numbers: normal ones, or from
    a range, which whole numbers need.

    \b
    slipstream lint package.models:make_model --input 8x3x224x224
    slipstream lint models/net.py:Net --input 1x3x640x640:float16 --device cuda
    slipstream lint bert.py:model --input ids=1x128:int64:0..30521
    slipstream lint --check --ignore launch-bound net.py:Net --input 8x64
    """
    import contextlib
    import json
    import sys

    from rich.console import Console

    from slipstream.cli.model_target import load_model, parse_inputs
    from slipstream.infer.lint.lint import lint_model
    from slipstream.infer.subject import Subject

    console = Console(stderr=True, highlight=False)
    with contextlib.redirect_stdout(sys.stderr), console.status("loading", spinner="line") as live:
        given = parse_inputs(inputs or [], device or "cpu")
        model = load_model(target)
        if device is not None:
            model = model.to(device)
        place = Subject(model, given).device
        given = given.map(lambda tensor: tensor.to(place))
        report = lint_model(model, given, seconds=seconds, ignore=ignore or (), tell=live.update)
    print(json.dumps(report.to_dict(), indent=2) if as_json else report)
    if check and report.findings:
        raise typer.Exit(EXIT_FINDINGS)
