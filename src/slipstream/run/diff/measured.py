"""What the doctor measured for a fix."""

from slipstream.doctor.rules.replayed import compare
from slipstream.run.diff.source import NoEdit
from slipstream.run.fix import Situation


def best_number(situation: Situation) -> int:
    """Of threads for torch."""
    for entry in situation.capture.replays:
        if entry["name"] == "threads" and compare(entry).is_sure:
            return int(entry["threads"][1])
    raise NoEdit("no number of threads was measured to be faster")
