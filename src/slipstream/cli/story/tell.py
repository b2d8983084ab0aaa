"""Tells the story: a slow script, what is slow in it, the script fixed, and on packed photos."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from slipstream.cli.story.calling import call, show_live
from slipstream.cli.story.change import changed_lines, packed_version
from slipstream.cli.story.result import Result
from slipstream.cli.story.trained import Trained, read_trained
from slipstream.errors import InternalError

PHOTOS, PACKED = "photos", "photos.slip"
SCRIPT, PACKED_SCRIPT = "slow_train.py", "packed_train.py"
_HERE = Path(__file__).parent
_DOCTOR_STEPS = 40
_BUSY = 1.15  # between two runs of the same script
_BUSY_SHARE = 0.15  # of all cores, before anything runs


class Story:
    """Told on `console`, in `place`, with `count` photos."""

    def __init__(self, place: Path, count: int, console: Console) -> None:
        self._place, self._count, self._console = place, count, console
        self._result = Result()
        self._step, self._has_gpu = 0, False

    def tell(self) -> Result:
        """All of it, from the photos to the numbers."""
        self._note_a_busy_machine()
        self._make()
        self._train("Train as written")
        self._diagnose()
        self._fix()
        self._pack()
        self._train_packed()
        self._train("Train as written again, as the pace of the machine may have changed")
        self._compare()
        return self._result

    def _note_a_busy_machine(self) -> None:
        import psutil

        busy = psutil.cpu_percent(interval=0.5) / 100
        if busy > _BUSY_SHARE:
            self._result.notes.append(
                f"other programs kept {busy:.0%} of the cores busy at the start: the ratios are"
                " less sure"
            )

    def _make(self) -> None:
        from slipstream.cli.photos import write_photos
        from slipstream.cli.progress import format_bytes

        self._begin(f"Make {self._count} photo-like JPEGs, and the script to train on them")
        began = time.monotonic()
        text = (_HERE / SCRIPT).read_text(encoding="utf-8")
        (self._place / SCRIPT).write_text(text, encoding="utf-8")
        with show_live(self._console, "making photos …") as live:
            write_photos(
                self._place / PHOTOS,
                self._count,
                tell=lambda done: live(f"{done} of {self._count} photos"),
            )
        size = sum(file.stat().st_size for file in (self._place / PHOTOS).rglob("*.jpg"))
        self._say(f"{format_bytes(size)} in {PHOTOS}/, and {SCRIPT}: open it, it is short", began)

    def _train(self, title: str) -> None:
        self._begin(title)
        self._result.as_written.append(self._trained(SCRIPT, PHOTOS))

    def _trained(self, script: str, data: str) -> Trained:
        began = time.monotonic()
        trained = read_trained(self._run([script, data], f"python {script} {data}"))
        self._say(f"{trained.pictures_per_s:,.0f} pictures/s", began)
        return trained

    def _diagnose(self) -> None:
        self._begin("Ask the doctor what is slow")
        began = time.monotonic()
        self._slipstream(["doctor", "--steps", str(_DOCTOR_STEPS), SCRIPT, PHOTOS])
        report = self._json("report.json")
        machine = report.get("machine") or {}
        self._result.machine, self._has_gpu = _machine(machine), bool(machine.get("devices"))
        self._say(str(report.get("verdict", "")).strip(), began)
        for finding in (report.get("findings") or [])[:3]:
            where, cost = finding.get("where") or SCRIPT, finding.get("cost_ms") or 0.0
            self._say(f"{finding.get('rule')}, {where}: {cost:.0f} ms of every step")

    def _fix(self) -> None:
        self._begin("Run the same script, unchanged, with the fixes that keep its results")
        began = time.monotonic()
        said = self._slipstream(["run", "--report", "run.json", SCRIPT, PHOTOS])
        fixed = self._result.fixed = read_trained(said)
        outcome = self._json("run.json")
        applied = [f["fix"] for f in outcome.get("fixes", []) if f.get("state") == "applied"]
        self._result.checked.append(str(outcome.get("checked", "nothing")))
        self._say(f"applied: {', '.join(applied) or 'nothing'}")
        ratio = outcome.get("ratio")
        if ratio:
            self._say(f"tried before it runs: {ratio['value']:.1f} x as fast as it was written")
        self._say(f"{fixed.pictures_per_s:,.0f} pictures/s", began, "with the trials before it")

    def _pack(self) -> None:
        from slipstream.cli.story.crops import compare_crops

        self._begin("Pack the photos: the same JPEG coefficients, cut into tiles")
        began = time.monotonic()
        said = self._slipstream(["pack", PHOTOS, PACKED])
        [line] = [line for line in said.splitlines() if " samples in " in line] or [""]
        self._say(line.rpartition(", ")[0], began)
        crops = compare_crops(self._place / PHOTOS, self._place / PACKED)
        self._result.checked.append(f"{crops} random crops of packed photos have Pillow's pixels")

    def _train_packed(self) -> None:
        text = (self._place / SCRIPT).read_text(encoding="utf-8")
        changed = packed_version(text)
        (self._place / PACKED_SCRIPT).write_text(changed, encoding="utf-8")
        self._begin(f"Train on the packed photos: {PACKED_SCRIPT} is {SCRIPT} but for")
        for line in changed_lines(text, changed):
            style = "red" if line.startswith("-") else "green"
            shown = f"   {line[0]}{line[1:].removeprefix('    ')}"
            self._console.print(shown, style=style, markup=False, soft_wrap=True)
        self._result.packed = self._trained(PACKED_SCRIPT, PACKED)

    def _compare(self) -> None:
        first, second = self._result.as_written
        fixed, result = self._result.fixed, self._result
        assert fixed is not None
        if first.losses != second.losses:
            result.notes.append("the script's own losses differ from run to run on this machine")
        elif fixed.losses != first.losses and self._has_gpu:
            result.notes.append("losses as written and fixed differ, as they may on a GPU")
        elif fixed.losses != first.losses:
            raise InternalError(
                f"The fixed run learnt something else: its losses are {', '.join(fixed.losses)},"
                f" those of the script as written {', '.join(first.losses)}."
            )
        else:
            result.checked.insert(1, "the losses of all epochs, as written and fixed, are equal")
        slow, fast = sorted(run.pictures_per_s for run in self._result.as_written)
        if fast > _BUSY * slow:
            result.notes.append(
                f"the machine was busy: as written ran at {slow:,.0f} and at {fast:,.0f}"
                " pictures/s; the faster counts. Repeat it when nothing else runs here"
            )

    def _slipstream(self, arguments: Sequence[str]) -> str:
        command = f"slipstream {' '.join(arguments)}"
        return self._run(["-m", "slipstream", *arguments], command)

    def _run(self, arguments: Sequence[str], shown: str) -> str:
        self._console.print(f"   $ {shown}", style="cyan", markup=False, soft_wrap=True)
        return call(arguments, self._place, self._console, shown)

    def _json(self, name: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self._place / name).read_text(encoding="utf-8"))
        return loaded

    def _begin(self, title: str) -> None:
        self._step += 1
        self._console.print(f"{self._step}. {title}", style="bold", markup=False)

    def _say(self, text: str, began: float | None = None, more: str = "") -> None:
        if began is not None:
            text += f" ({time.monotonic() - began:.0f} s{' ' + more if more else ''})"
        self._console.print(f"   {text}", markup=False)


def _machine(known: dict[str, Any]) -> str:
    cores = known.get("usable_cores") or known.get("cores")
    devices = [str(name) for name in known.get("devices") or []]
    return f"{cores} cores and {', '.join(devices) or 'no GPU'}"
