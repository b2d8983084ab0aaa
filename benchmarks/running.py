"""Training scripts in the style of public ones, as they are and as `slipstream run` runs them.

    python -m benchmarks.running --photos folder/of/jpegs --save FILE

Each script is tried once, as `slipstream run` does; then processes without and with the fixes that
passed take turns, and their steps are timed when they have settled. What trials cost is not
counted. Nothing else should run on the machine meanwhile.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claim import Claim, show_claims
from benchmarks.machine import describe_machine
from slipstream.cli.photos import write_photos
from slipstream.launch import Target
from slipstream.run.choose import Wish
from slipstream.run.launch import run
from slipstream.run.memory import keeping, not_keeping
from slipstream.run.situation import diagnosed
from slipstream.run.speed import Speed, speed_of
from tests.run.public_runs import FOLDER, environment, make_data

_NONE_SLOWER = 0.98
_INPUT_BOUND = 2.5
_LOOPS = 1.3
_PHOTOS = 640
_LEAST_S = 1e-5


@dataclass(frozen=True)
class Case:
    """One script with arguments; `seconds` of a window and `warm_up` backward passes before it."""

    name: str
    file: str
    arguments: tuple[str, ...] = ()
    allow: str = "exact"
    at_least: float = _NONE_SLOWER
    rounds: int = 4
    seconds: float = 1.5
    warm_up: int = 8
    is_input_bound: bool = False
    drains: bool = False  # batches alone: the model takes no core from those who make them
    has_growing_steps: bool = False  # the same ones are compared: who is faster gets to longer ones


_IMAGENET = (
    "photos",
    "--size",
    "224",
    "-b",
    "32",
    "--dummy",
    "--epochs",
    "20",
    "-p",
    "10",
    "--stem",
    "8",
)
_TOKENS = (
    "--batch_size=12", "--block_size=64", "--n_layer=4", "--n_head=4", "--n_embd=128",
    "--gradient_accumulation_steps=1", "--eval_interval=2000", "--max_iters=4000", "--dropout=0.0",
)  # fmt: skip
_TABLE = ("--rows", "20000", "--epochs", "40")
_LONGER = {
    "recipe": ("--epochs", "40"),
    "segment": ("--epochs", "10"),
    "gan": ("--niter", "40"),
    "ragged": ("40",),
    "mnist": ("--epochs", "20"),
    "vae": ("--epochs", "60"),
    "words": ("--epochs", "40"),
    "siamese": ("--epochs", "40"),
    "reinforce": ("400",),
}
CASES = (
    Case("pictures, no workers", "imagenet", (*_IMAGENET, "-j", "0"), seconds=6.0, warm_up=3,
         is_input_bound=True),
    Case("pictures, 2 workers", "imagenet", (*_IMAGENET, "-j", "2"), seconds=6.0, warm_up=4,
         is_input_bound=True),
    Case("pictures, 2 workers, batches alone", "imagenet", (*_IMAGENET, "-j", "2"),
         at_least=_INPUT_BOUND, seconds=6.0, warm_up=4, drains=True),
    Case("tokens", "tokens", _TOKENS, at_least=_LOOPS, seconds=3.0),
    Case("tabular", "tabular", _TABLE, at_least=_LOOPS, seconds=2.0, warm_up=50),
    *(
        Case(name, name, arguments, has_growing_steps=name == "reinforce")
        for name, arguments in _LONGER.items()
    ),
)  # fmt: skip
# Trials of these take minutes.
NUMERIC = (
    Case("tokens, numeric", "tokens", _TOKENS, "numeric", _LOOPS, 4, 3.0, 40),
    Case("tabular, numeric", "tabular", _TABLE, "numeric", _LOOPS, 4, 2.0, 200),
)


@dataclass(frozen=True)
class Steps:
    """Of one process: what steps took, and how much of that was spent waiting for batches."""

    seconds: list[float]
    waited: list[float]

    def first(self, count: int) -> "Steps":
        """So many of them."""
        return Steps(self.seconds[:count], self.waited[:count])

    @property
    def second(self) -> float:
        """What one took."""
        return statistics.fmean(self.seconds)

    @property
    def wait(self) -> float:
        """How long one waited."""
        return statistics.fmean(self.waited)


def main() -> None:
    """Measure, and show what was found beside its targets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.running")
    parser.add_argument("--photos", type=Path, help="folder of JPEGs; made if not given")
    parser.add_argument("--save", type=Path, help="write the numbers and the machine as JSON")
    parser.add_argument("--only", default="", help="cases whose names begin so: a;b")
    parser.add_argument("--numeric", action="store_true", help="also what may round differently")
    parser.add_argument("--rounds", type=int, help="turns of each case")
    options = parser.parse_args()
    names = [name for name in options.only.split(";") if name]
    known = (*CASES, *NUMERIC) if options.numeric else CASES
    cases = [case for case in known if not names or case.name.startswith(tuple(names))]
    if not cases:
        parser.error(f"no such case; there are: {'; '.join(case.name for case in known)}")
    save = options.save.absolute() if options.save else None
    claims: list[Claim] = []
    with tempfile.TemporaryDirectory(prefix="slipstream-running-") as place:
        photos = options.photos.absolute() if options.photos else Path(place, "made")
        if options.photos is None:
            write_photos(photos, 200)
        files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in _ENDINGS)
        if not files:
            parser.error(f"no JPEGs below {photos}")
        for case in cases:
            print(f"{case.name} …", file=sys.stderr)
            folder = Path(place, case.name.replace(" ", "-"))
            folder.mkdir()
            if case.is_input_bound or case.drains:
                _sort_into_classes(files, folder / "photos" / "train")
            claims += measure(case, folder, options.rounds or case.rounds)
    machine = describe_machine()
    show_claims(claims, f"{machine['processor']}, {machine['cores']} cores")
    if save:
        report = {"machine": machine, "claims": [claim.as_dict() for claim in claims]}
        save.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


_ENDINGS = {".jpg", ".jpeg"}


def measure(case: Case, folder: Path, rounds: int) -> list[Claim]:
    """Claims about one script, which finds its data in the folder."""
    make_data(folder)
    known = folder / "known"
    known.mkdir()
    try:
        fixes = _fixes_that_pass(case, folder, known)
    except Exception as error:
        return [Claim(case.name, None, f"{type(error).__name__}: {error}", case.at_least)]
    runs: dict[str, list[Steps]] = {"as it is": [], "fixed": []}
    for number in range(rounds):
        ways = list(runs)
        for way in ways if number % 2 == 0 else reversed(ways):
            runs[way].append(_run(case, folder, known, fixes if way == "fixed" else ()))
    if case.has_growing_steps:
        least = min(len(steps.seconds) for way in runs.values() for steps in way)
        runs = {way: [steps.first(least) for steps in found] for way, found in runs.items()}
    before, after = runs["as it is"], runs["fixed"]
    # Processes of the same script differ for as long as they live: each counts once.
    speed = speed_of([steps.second for steps in before], [steps.second for steps in after])
    what = ", ".join(fixes) or "no fix"
    claims = [_claim(case.name, speed, what, case.at_least)]
    if case.is_input_bound:
        bound = speed_of(*input_bound(before, after))
        claims.append(_claim(f"{case.name}: input-bound part", bound, what, _INPUT_BOUND))
    return claims


def input_bound(before: list[Steps], after: list[Steps]) -> tuple[list[float], list[float]]:
    """What steps take beyond their own computing, which is what they took without waiting.

    >>> input_bound([Steps([3.0], [2.0])], [Steps([1.5], [0.1])])
    ([2.0], [0.5])
    """
    computing = statistics.fmean(steps.second - steps.wait for steps in before)
    return (
        [steps.wait for steps in before],
        [max(steps.second - computing, _LEAST_S) for steps in after],
    )


def _claim(what: str, speed: Speed | None, fixes: str, at_least: float) -> Claim:
    if speed is None:
        return Claim(what, None, "too few steps", at_least)
    numbers = f"{speed.low:.2f} to {speed.high:.2f}; {speed.after:.2f} against {speed.before:.2f}/s"
    return Claim(what, speed.ratio, f"{numbers}; {fixes}", at_least)


def _fixes_that_pass(case: Case, folder: Path, known: Path) -> tuple[str, ...]:
    before = Path.cwd()
    variables = dict(os.environ)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]
    try:
        script = str(FOLDER / f"{case.file}.py")
        outcome = run(Target(script, case.arguments), Wish(case.allow), dry=True)
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(variables)
    assert outcome.situation is not None
    diagnosed(outcome.situation.capture, known)
    return tuple(fix.name for fix in outcome.fixes if fix.state == "applied")


def _run(case: Case, folder: Path, known: Path, fixes: Sequence[str]) -> Steps:
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        for entry in folder.iterdir():
            Path(place, entry.name).symlink_to(entry)
        spec = folder.parent / "spec.json"
        spec.write_text(
            json.dumps({
                "script": str(FOLDER / f"{case.file}.py"), "arguments": case.arguments,
                "fixes": fixes, "known": str(known), "seconds": case.seconds,
                "warm_up": case.warm_up, "drains": case.drains,
            })
        )  # fmt: skip
        variables = {**os.environ, "PYTHONPATH": environment()["PYTHONPATH"]}
        variables = keeping(variables) if "kept-memory" in fixes else not_keeping(variables)
        subprocess.run(
            [sys.executable, "-m", "benchmarks.running_child", str(spec)], cwd=place, check=True,
            env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        seen = json.loads(spec.read_text())
    if case.drains:
        return Steps(seen["alone"], seen["alone"])
    steps, waits = (
        [after - before for before, after in itertools.pairwise(seen[name])][case.warm_up :]
        for name in ("ends", "waited")
    )
    return Steps(steps, waits)


def _sort_into_classes(files: list[Path], folder: Path) -> None:
    for number in range(_PHOTOS):
        place = folder / f"class{number % 10}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:05d}.jpg").symlink_to(files[number % len(files)])


if __name__ == "__main__":
    main()
