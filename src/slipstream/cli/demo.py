"""`slipstream demo`: the whole story, on photos it makes itself."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from slipstream.errors import StorageError, UsageError

_NEXT = """
Next, with a script and pictures of your own:
  slipstream doctor train.py ARGS         what is slow in it
  slipstream run train.py ARGS            the same results, faster
  slipstream pack YOUR_FOLDER train.slip  for slipstream.Loader"""
_MADE = (
    "slow_train.py", "packed_train.py", "report.json", "report.html", "run.json", "demo.json",
)  # fmt: skip


def demo(
    count: Annotated[int, typer.Option(min=16, help="Number of photo-like JPEGs to make.")] = 256,
    out: Annotated[
        Path, typer.Option(help="Folder for the scripts, the report and the numbers.")
    ] = Path("slipstream-demo"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the photos, as files and packed.")
    ] = False,
) -> None:
    """Train a slow script on photos, ask the doctor, run it fixed and packed, compare.

    Takes a minute or two. On a machine with a GPU the training is there.
    """
    from rich.console import Console

    from slipstream.cli.story.result import print_result
    from slipstream.cli.story.tell import PACKED, PHOTOS, SCRIPT, Story
    from slipstream.cli.text import say

    console = Console(highlight=False)
    with _folder(out, (PHOTOS, PACKED), keep=keep):
        console.print(
            "A training script as written, fixed by Slipstream, and on packed photos.\n"
            f"A minute or two, all of it in {out}/; the photos go at the end, unless --keep.\n"
        )
        result = Story(out.absolute(), count, console).tell()
        text = json.dumps(result.as_dict(), indent=1)
        (out / "demo.json").write_text(text + "\n", encoding="utf-8")
    print_result(result, count, console)
    print()
    say(f"Look at {out / 'report.html'}, in a browser: the doctor's whole report on {SCRIPT}.")
    if keep:
        print(f"The photos are in {out / PHOTOS} and {out / PACKED}.")
    print(_NEXT)


@contextlib.contextmanager
def _folder(place: Path, data: tuple[str, ...], *, keep: bool) -> Iterator[None]:
    """Make the folder; take the data away at the end, and all that was made where that is early.
    What others have put there stays.
    """
    # What an earlier demo has left is made anew.
    others = () if (place / "demo.json").exists() else _MADE
    for name in (*data, *others):
        if (place / name).exists():
            raise UsageError(
                f"{place / name} exists already: remove it, or name another folder with --out."
            )
    was_there = place.exists()
    try:
        place.mkdir(parents=True, exist_ok=True)
        earlier = set(place.iterdir())
    except OSError as error:
        raise StorageError(f"{place} cannot be used as a folder: {error}.") from None
    try:
        yield
    except BaseException:
        made = [place / name for name in (*data, *_MADE)]
        _remove([path for path in made if path not in earlier])
        if not was_there:
            with contextlib.suppress(OSError):
                place.rmdir()
        raise
    if not keep:
        _remove([place / name for name in data])


def _remove(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
