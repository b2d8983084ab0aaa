"""Records the scripts into small captures: `python -m tests.doctor.record_scripts [names…]`.

The tests of the rules read these. Recorded again when the recorder learns something new.
"""

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from slipstream.doctor.report import make_report
from tests.doctor.scripts import CAPTURES, all_scripts, run_doctor, truth_of
from tests.doctor.settings import Unavailable

_LARGEST = 40_000
_MOST_LINES = 40


def shortened(capture: dict[str, Any]) -> dict[str, Any]:
    """What the rules look at, without the long tail of lines."""
    for process in capture["processes"]:
        process["lines"] = process["lines"][:_MOST_LINES]
        process["folders"] = dict(list(process["folders"].items())[:2])
    capture["lines"] = capture["lines"][:_MOST_LINES]
    capture["memory"] = capture["memory"][:10]
    return capture


def record(path: Path) -> None:
    """Record one script; what the doctor says now is shown, to be looked at."""
    with tempfile.TemporaryDirectory() as folder:
        report, recording = run_doctor(path, Path(folder))
        capture = shortened(json.loads(recording.read_text()))
    target = CAPTURES / f"{path.stem}.json.gz"
    text = json.dumps(capture, separators=(",", ":")).encode()
    target.write_bytes(gzip.compress(text, mtime=0))
    size = target.stat().st_size
    assert size <= _LARGEST, f"{target.name}: {size} bytes"
    said = [(f["rule"], round(f["cost_ms"], 1), f["where"]) for f in report["findings"]]
    print(f"{path.stem:34} {size:6}  truth {truth_of(path).rule}  said {said}", flush=True)


def report_of(name: str) -> dict[str, Any]:
    """What the rules say of a capture."""
    from slipstream.doctor.capture import capture_from

    text = gzip.decompress((CAPTURES / f"{name}.json.gz").read_bytes())
    return make_report(capture_from(json.loads(text)))


def main(names: list[str]) -> None:
    CAPTURES.mkdir(exist_ok=True)
    for path in all_scripts():
        if not names or any(name in path.stem for name in names):
            try:
                record(path)
            except Unavailable as why:
                print(f"{path.stem:34} not recorded: {why}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
