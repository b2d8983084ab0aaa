"""What the ranks of a distributed run tell each other when the recording is over.

Each writes a file; the first waits for the others of its machine. Nothing goes over the process
group: a rank that has ended, or hangs, must not hold the others up.
"""

import json
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from slipstream.doctor.attribute import Step, attribute
from slipstream.doctor.capture import Capture, Loader, Span

_PATIENCE_S = 8.0
_EVERY_S = 0.05


def exchange(spans: list[Span], loaders: list[Loader], clock: str) -> list[dict[str, Any]]:
    """Steps and parts of the ranks on this machine, for the first of them; for others nothing. To
    be called where there was a process group: else processes of one launcher need not be one job.
    """
    # What the launcher says: a script that has ended has left its process group by now.
    try:
        rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        beside = int(os.environ["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError):
        return []
    if beside < 2:
        return []
    capture = Capture("", {}, "", clock=clock, spans=spans, loaders=loaders)
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    own = folder / f"{local}.json"
    _write(own, summary_of(capture, rank))
    if local:
        return []
    found = _gathered(folder, beside)
    for file in folder.glob("*.json"):
        file.unlink(missing_ok=True)
    with suppress(OSError):  # a rank that is later than we wait
        folder.rmdir()
    return found if len(found) > 1 else []


def summary_of(capture: Capture, rank: int) -> dict[str, Any]:
    """What a rank says of its steps."""
    attribution = attribute(capture)
    return {
        "rank": rank,
        "steps": len(attribution.steps),
        "step_ms": attribution.step_ms,
        "parts": dict(attribution.parts),
        "before_exchange_ms": [_before_exchange(step) for step in attribution.steps],
    }


def _before_exchange(step: Step) -> float:
    """Outside of the backward pass, where gradients are exchanged."""
    return round((step.end - step.start - step.parts.get("backward", 0)) * 1e-6, 4)


def _folder() -> Path:
    """The same for all ranks of a run, and for no other run."""
    names = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    run = "-".join(os.environ.get(name, "") for name in names)
    safe = "".join(letter if letter.isalnum() else "-" for letter in run)
    # torchrun is the parent of all ranks of a machine.
    return Path(tempfile.gettempdir()) / f"slipstream-ranks-{os.getuid()}-{os.getppid()}-{safe}"


def _write(path: Path, values: dict[str, Any]) -> None:
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(values))
    unfinished.replace(path)


def _gathered(folder: Path, count: int) -> list[dict[str, Any]]:
    ends = time.monotonic() + _PATIENCE_S
    while time.monotonic() < ends and len(list(folder.glob("*.json"))) < count:
        time.sleep(_EVERY_S)
    found = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    return sorted(found, key=lambda entry: int(entry["rank"]))
