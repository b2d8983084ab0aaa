"""`slipstream optimize MODEL`: the fastest variant of a model that gives the same answers."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.errors import UsageError

if TYPE_CHECKING:
    from slipstream.infer.optimized import Optimized


def optimize(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="package.module:name or path/to/file.py:name.")
    ],
    inputs: Annotated[
        list[str],
        typer.Option("--input", help="An argument: [NAME=]SHAPE[:DTYPE[:RANGE]]. Repeatable."),
    ],
    also: Annotated[
        list[str] | None,
        typer.Option(help="Arguments of other shapes that have to work: A,B. Repeatable."),
    ] = None,
    accuracy: Annotated[
        str, typer.Option(help="exact; mixed: also bf16, fp16, TF32; lossy: also int8.")
    ] = "exact",
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="file.py:name: scores of a model's batch, one a sample."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="file.py:name: the batches for it.")
    ] = None,
    max_drop: Annotated[float, typer.Option(help="How far the mean score may drop.")] = 0.01,
    without: Annotated[
        str, typer.Option(help="Changes to leave out, by the table's names: a,b")
    ] = "",
    budget: Annotated[float, typer.Option(help="Seconds of the search.")] = 180.0,
    device: Annotated[
        str | None, typer.Option(help="Where the model runs: cpu, cuda; where it is if not given.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Folder for the variant; slipstream.infer.load reads it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all details.")] = False,
) -> None:
    """Find the fastest variant of a model, of those that answer as it does.

    The name is a model, a class without arguments or a function that makes
    one. Variants change layout, fold batch norms, compile, use other runtimes
    that are installed. Each is compared with the model in double precision
    before its time counts; the model as it is wins ties. Nothing is changed.

    \b
    slipstream optimize net.py:make_model --input 8x3x224x224
    slipstream optimize pkg.models:Encoder --input ids=4x128:int64:0..999
    slipstream optimize --accuracy mixed --save fast net.py:Net --input 1x64
    slipstream optimize net.py:Net --input 1x64 --accuracy lossy
        --metric net.py:score --data net.py:test_batches
    """
    import json

    from slipstream.cli.model_target import (
        instead_of,
        load_batches,
        load_function,
        load_model,
        parse_inputs,
    )
    from slipstream.infer.change import KINDS
    from slipstream.infer.optimize import optimize_model

    kind = next((kind for kind in KINDS if kind == accuracy), None)
    if kind is None:
        raise UsageError(f"--accuracy is {accuracy!r}; expected {', '.join(KINDS)}.")
    if (metric is None) != (data is None) or (kind == "lossy" and metric is None):
        raise UsageError(
            "Only a task can tell whether coarser numbers do: give --metric file.py:score, a "
            "function of a model and a batch with one score per sample, and --data file.py:test, "
            "the batches."
        )
    made_for_it = _make_room(save) if save is not None else []
    # What the model's own code prints is no part of the result.
    with _gone_if_it_fails(made_for_it), redirect_stdout(sys.stderr), _progress(quiet=as_json):
        made = load_model(model)
        place = device or str(next((each.device for each in made.parameters()), "cpu"))
        given = parse_inputs(inputs, place)
        others = [parse_inputs(instead_of(inputs, text), place) for text in also or ()]
        found = optimize_model(
            made.to(place),
            given,
            accuracy=kind,
            metric=None if metric is None else load_function(metric, "metric"),
            data=None if data is None else load_batches(data, place),
            max_drop=max_drop,
            also=others,
            without=[name.strip() for name in without.split(",") if name.strip()],
            budget_s=budget,
        )
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        _show(found)
    if save is not None:
        found.save(save)
        if not as_json:
            print(f"\nStored in {save}. In Python: slipstream.infer.load({str(save)!r}, model)")


def _make_room(folder: Path) -> list[Path]:
    """Before a search that would be in vain. Returns the folders that were made, the last first."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return missing
    except OSError as error:
        raise UsageError(
            f"--save is {folder}, which cannot be made ({error.strerror}); expected a folder."
        ) from None


@contextmanager
def _gone_if_it_fails(folders: list[Path]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for folder in folders:
            with suppress(OSError):  # somebody else has put something there
                folder.rmdir()
        raise


@contextmanager
def _progress(quiet: bool) -> Iterator[None]:
    """What is being tried, where somebody looks at it."""
    import logging

    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    status = console.status("looking at the model …")
    handler = logging.Handler()
    handler.emit = lambda record: status.update(f"trying {record.getMessage()} …")  # type: ignore[method-assign]
    log = logging.getLogger("slipstream.infer")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with status:
            yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def _show(found: "Optimized") -> None:
    from rich.console import Console

    from slipstream.infer.text import table_of, verdict_of

    console = Console()
    print(verdict_of(found) + "\n")
    print(table_of(found.rows, console.width, console.is_terminal and not console.no_color))
