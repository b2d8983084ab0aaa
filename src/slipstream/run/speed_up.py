"""`speed_up`: fixes of `slipstream run`, put in place by the script itself."""

import atexit
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from slipstream.errors import UsageError

if TYPE_CHECKING:
    from slipstream.run.fix import Situation

# These are lines of their own in a script: what they do depends on what was measured, or comes too
# late when a script runs.
NOT_HERE = ("kept-memory", "threads", "fused-optimizer", "more-workers")

in_place: dict[str, Callable[[], None]] = {}  # by `speed_up` and by blocks of `faster`


def speed_up(*names: str) -> None:
    """Put fixes of `slipstream run` in place in this process, until it ends. What `slipstream run
    --diff` proposes for fixes that no single line of a script could do.

    They are the fixes that `slipstream run` has tried on this script: here nothing is tried or
    compared. One that fails is off, with a warning. In processes that the script starts this does
    nothing; workers of loaders are reached all the same.

    >>> import slipstream
    >>> slipstream.speed_up("native-pictures", "garbage-pauses")
    """
    from slipstream.run.apply import FIXES, apply_all

    known = [fix.name for fix in FIXES if fix.name not in NOT_HERE]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(
            f"speed_up cannot do {', '.join(map(repr, unknown))}; it can: {', '.join(known)}."
        )
    if _is_started_by_another():
        return
    atexit.unregister(_take_away)
    atexit.register(_take_away)
    wanted = [name for name in known if name in names and name not in in_place]
    in_place.update(apply_all(wanted, unknown_script()))


def _is_started_by_another() -> bool:
    """Whether this is a process of multiprocessing, or becomes one: while it loads the script, it
    does not know its parent yet.
    """
    becomes = getattr(multiprocessing.current_process(), "_inheriting", False)
    return becomes or multiprocessing.parent_process() is not None


def unknown_script() -> "Situation":
    """What a diagnosis would be that says nothing."""
    from slipstream.doctor.capture import Capture, Process, StageTimes
    from slipstream.run.fix import Situation

    capture = Capture(sys.argv[0] if sys.argv else "", {}, "")
    if "h5py" in sys.modules:
        capture.processes.append(Process(0, 0, None, stages={"read: h5py.File": StageTimes()}))
    return Situation({"findings": []}, capture)


def _take_away() -> None:
    """At the end of the process."""
    failed = False
    while in_place:
        _, undo = in_place.popitem()
        try:
            undo()
        except Exception:
            traceback.print_exc()
            failed = True
    if failed:
        # Such as a checkpoint that was not written: a script that has lost it has not succeeded.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
