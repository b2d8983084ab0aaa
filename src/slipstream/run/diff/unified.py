"""A unified diff that `git apply` and `patch -p1` take."""

import difflib
from collections.abc import Mapping
from pathlib import Path


def base_of(paths: list[Path], folder: Path) -> Path:
    """The folder that paths of a diff are relative to: where the script was run, if they all lie
    below, else the nearest above them.

    >>> base_of([Path("/a/b/train.py"), Path("/a/c.py")], Path("/a/b"))
    PosixPath('/a')
    """
    for base in (folder, *folder.parents):
        if all(path.is_relative_to(base) for path in paths):
            return base
    return folder


def unified(before: Mapping[Path, str], after: Mapping[Path, str], base: Path) -> str:
    """Of all files that differ."""
    return "".join(
        _of_file(before[path], after[path], path.relative_to(base).as_posix())
        for path in sorted(after)
        if before[path] != after[path]
    )


def _of_file(before: str, after: str, name: str) -> str:
    end = "\t" if " " in name else ""  # or the name would end there
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}{end}", f"b/{name}{end}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _lines(text: str) -> list[str]:
    """As `patch` counts them: ends of lines are newlines, and nothing else."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1].removesuffix("\n")
    return [line for line in lines if line]
