"""Code in a sandbox, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

_ENTER = """
import os, shutil, sys
from pathlib import Path
from slipstream.run.sandbox.enter import enter
place = Path(sys.argv[1])
os.environ["TMPDIR"] = str(place / "tmp")
(place / "tmp").mkdir()
enter(place / "written")
os.chdir(sys.argv[2])
"""
_SCRIPT = """
from slipstream.launch import Target, run_target
sys.exit(run_target(Target("train.py")).exit_code)
"""


def make_home(folder: Path) -> Path:
    home = folder / "home"
    (home / "data" / "below").mkdir(parents=True)
    (home / "data" / "a.txt").write_text("as it was")
    (home / "data" / "below" / "b.txt").write_text("as it was, too")
    (home / "log.txt").write_text("line\n")
    return home


def in_trial(home: Path, code: str, *, first: str = "", script: bool = False) -> str:
    """What code says that is in a sandbox; the user's files must be untouched. `first` runs before
    it enters; `script`: it is a file, as the main program.
    """
    place = home.parent / "trial"
    place.mkdir()
    if script:
        (home / "train.py").write_text(dedent(code))
    before = all_of(home)
    done = subprocess.run(
        [
            sys.executable, "-c", dedent(first) + _ENTER + (_SCRIPT if script else dedent(code)),
            str(place), str(home),
        ],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all_of(home) == before
    return done.stdout


def all_of(folder: Path) -> dict[Path, object]:
    """Every file, link and folder, with what it is."""
    paths = [path for path in folder.rglob("*") if "__pycache__" not in path.parts]
    return {path: _content(path) for path in sorted(paths)}


def _content(path: Path) -> object:
    if path.is_symlink():
        return os.readlink(path)  # noqa: PTH115
    found = path.stat()
    return (found.st_mode, found.st_ino, found.st_nlink, path.is_file() and path.read_bytes())
