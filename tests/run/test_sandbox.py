"""What a trial writes is kept out of the user's files, and read back as if it were there."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

_ENTER = """
import os, shutil, sys
from pathlib import Path
from slipstream.run.sandbox import Sandbox
place = Path(sys.argv[1])
os.environ["TMPDIR"] = str(place / "tmp")
(place / "tmp").mkdir()
Sandbox(place / "written").enter()
os.chdir(sys.argv[2])
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / "data" / "a.txt").write_text("as it was")
    (home / "log.txt").write_text("line\n")
    return home


def in_trial(home: Path, code: str) -> str:
    """Run code that is in a sandbox; the user's files must be untouched."""
    place = home.parent / "trial"
    place.mkdir()
    before = {path: path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}
    done = subprocess.run(
        [sys.executable, "-c", _ENTER + dedent(code), str(place), str(home)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    after = {path: path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}
    assert after == before
    return done.stdout


def test_what_is_written_is_read_back(home: Path) -> None:
    said = in_trial(
        home,
        """
        Path("new").mkdir()
        Path("new/file.txt").write_text("mine")
        with open("log.txt", "a") as file:
            file.write("more\\n")
        print(Path("new/file.txt").read_text(), os.listdir("new"), open("log.txt").read().split())
        """,
    )
    assert said.strip() == "mine ['file.txt'] ['line', 'more']"


def test_folders_show_both(home: Path) -> None:
    said = in_trial(
        home,
        """
        open("data/b.txt", "w").close()
        print(sorted(os.listdir("data")), sorted(e.name for e in os.scandir("data")))
        print(sorted(f for _, _, files in os.walk(".") for f in files))
        """,
    )
    assert said.splitlines() == [
        "['a.txt', 'b.txt'] ['a.txt', 'b.txt']",
        "['a.txt', 'b.txt', 'log.txt']",
    ]


def test_what_is_removed_is_gone_for_the_trial(home: Path) -> None:
    said = in_trial(
        home,
        """
        os.remove("log.txt")
        shutil.rmtree("data")
        print(os.path.exists("log.txt"), os.path.isdir("data"))
        try:
            open("log.txt")
        except FileNotFoundError:
            print("not there")
        """,
    )
    assert said.split() == ["False", "False", "not", "there"]


def test_a_checkpoint_that_is_renamed(home: Path) -> None:
    said = in_trial(
        home,
        """
        import torch
        torch.save({"a": torch.ones(2)}, "model.tmp")
        os.replace("model.tmp", "model.pt")
        print(torch.load("model.pt")["a"].tolist(), os.path.exists("model.tmp"))
        """,
    )
    assert said.strip() == "[1.0, 1.0] False"


def test_a_folder_that_is_there_is_there(home: Path) -> None:
    said = in_trial(
        home,
        """
        os.makedirs("data", exist_ok=True)
        try:
            os.mkdir("data")
        except FileExistsError:
            print("there already")
        """,
    )
    assert said.strip() == "there already"
