"""Runs the scripts of tests/run/public: as they are, and under `slipstream run`."""

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).parent.parent.parent
FOLDER = Path(__file__).parent / "public"
# What a clock says is not compared.
_CLOCK = re.compile(
    r"(Time|Data)\s+\d+\.\d+ \(\s*\d+\.\d+\)"  # meters
    r"|(?<=took )\d+\.\d+"  # logs
    r"|['\"]\w+_(runtime|per_second)['\"]: '?[\d.e+-]+'?"  # the Trainer
)


@dataclass(frozen=True)
class Script:
    """One of them. `needs` is a module without which it is not tried."""

    name: str
    arguments: tuple[str, ...] = ()
    needs: str = ""
    file: str = ""

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.file or self.name}.py"


SCRIPTS = {
    script.name: script
    for script in (
        Script("imagenet", ("pictures", "--seed", "1")),
        Script("imagenet-workers", ("pictures", "--seed", "1", "-j", "2"), file="imagenet"),
        Script("recipe"),
        Script("recipe-amp", ("--amp", "--workers", "1"), file="recipe"),
        Script("tokens"),
        Script("segment"),
        Script("gan"),
        Script("ragged"),
        Script("tabular"),
        Script("mnist", ("--save-model",)),
        Script("cifar"),
        Script("cifar-workers", ("--workers", "2"), file="cifar"),
        Script("vae"),
        Script("words"),
        Script("siamese"),
        Script("siamese-workers", ("--workers", "2"), file="siamese"),
        Script("reinforce"),
        Script("spawned"),
        Script("logged"),
        Script("hugging", needs="transformers"),
        Script("lit", needs="lightning"),
    )
}


@dataclass
class Run:
    """What came of one: what it printed, without times, and what it wrote."""

    exit_code: int
    printed: list[str]
    complained: str
    files: dict[str, str]
    report: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def became(self, fix: str) -> str:
        return str(next(entry["state"] for entry in self.report["fixes"] if entry["fix"] == fix))


def is_there(script: Script) -> bool:
    return not script.needs or importlib.util.find_spec(script.needs) is not None


def make_data(folder: Path) -> None:
    """All that any of the scripts reads."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 12), ("val", 3)):
        for label in range(10):
            place = folder / "pictures" / split / f"class{label}"
            place.mkdir(parents=True)
            for number in range(count):
                coarse = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
                picture = Image.fromarray(coarse).resize((96, 72), Image.Resampling.BICUBIC)
                picture.save(place / f"{number}.jpg", quality=90)
    rows = rng.normal(size=(240, 8))
    lines = [",".join(f"{value:.6f}" for value in (*row, row[:3].sum())) for row in rows]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    settings = {"lr": 0.01, "seed": 5, "batch_size": 8, "total_steps": 200}
    (folder / "config.json").write_text(json.dumps(settings))


def run_plain(script: Script, folder: Path) -> Run:
    return _run(script, [str(script.path)], folder)


def run_fixed(script: Script, folder: Path, *options: str) -> Run:
    report = folder.with_suffix(".json")
    command = ["-m", "slipstream", "run", "--report", str(report), *options]
    run = _run(script, [*command, str(script.path)], folder)
    if report.exists():
        run.report = json.loads(report.read_text())
    return run


class Server:
    """Runs scripts with fixes that are put in place whether they help or not."""

    def __enter__(self) -> "Server":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.run.public_server"], env=environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, script: Script, folder: Path, fixes: Sequence[str] = ()) -> Run:
        assert self._process.stdin is not None and self._process.stdout is not None
        before = _files(folder)
        spec = {
            "script": str(script.path), "arguments": script.arguments, "folder": str(folder),
            "fixes": fixes,
        }  # fmt: skip
        self._process.stdin.write(json.dumps(spec) + "\n")
        self._process.stdin.flush()
        said = json.loads(self._process.stdout.readline())
        out, err = (Path(f"{folder}.{kind}").read_text() for kind in ("out", "err"))
        written = _written(folder, before)
        return Run(said["exit_code"], _lines(out), err, written, failures=said["failures"])


def _run(script: Script, command: list[str], folder: Path) -> Run:
    before = _files(folder)
    # Libraries would take the stand-ins for the real ones.
    variables = environment(has_standins=not script.needs)
    done = subprocess.run(
        [sys.executable, *command, *script.arguments], cwd=folder, env=variables, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    return Run(done.returncode, _lines(done.stdout), done.stderr, _written(folder, before))


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def _written(folder: Path, before: set[Path]) -> dict[str, str]:
    new = sorted(_files(folder) - before)
    return {str(path.relative_to(folder)): _content(path) for path in new}


def _lines(printed: str) -> list[str]:
    return [_CLOCK.sub("", line) for line in printed.splitlines()]


def environment(*, has_standins: bool = True) -> dict[str, str]:
    """With stand-ins for what is not installed, and one thread: the models are small."""
    places = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    if has_standins and importlib.util.find_spec("torchvision") is None:
        places.insert(0, str(FOLDER / "standins"))
    path = os.pathsep.join(place for place in places if place)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _content(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix in (".log", ".json"):
        data = _CLOCK.sub("", data.decode()).encode()
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}"
