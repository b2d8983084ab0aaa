"""A diagnosis, kept in a folder for the processes that need it."""

import json
from pathlib import Path

from slipstream.doctor.capture import Capture, load_capture, save_capture
from slipstream.doctor.report import make_report
from slipstream.run.fix import Situation


def diagnosed(capture: Capture, folder: Path) -> Situation:
    """What the doctor says of a recording; kept in `folder`."""
    report = make_report(capture)
    save_capture(capture, folder / "capture.json")
    (folder / "report.json").write_text(json.dumps(report))
    return Situation(report, capture)


def load_situation(folder: Path) -> Situation:
    """What `diagnosed` has kept."""
    report = json.loads((folder / "report.json").read_text())
    return Situation(report, load_capture(folder / "capture.json"))
