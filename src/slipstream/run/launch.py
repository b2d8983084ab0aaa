"""`slipstream run`: diagnose, try the fixes in processes that are thrown away, then run.

The script runs in a fresh process in the place of this one (`execve`: the same pid, terminal,
signals and exit code), for torch reads some settings when it is loaded, and what trials have loaded
is gone then. It is the same command line, which finds in the environment what was tried.
"""

import contextlib
import errno
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

from slipstream.doctor.capture import Capture
from slipstream.errors import UsageError
from slipstream.launch import Target, check_target
from slipstream.run.choose import Wish, check_wish
from slipstream.run.ending import ending_in_order
from slipstream.run.fix import Situation
from slipstream.run.launchers import check_no_launcher
from slipstream.run.memory import TRIED, keeping, not_keeping
from slipstream.run.outcome import Outcome
from slipstream.run.ranks import find_ranks
from slipstream.run.real import PLACE, outcome_of, run_for_real
from slipstream.run.situation import diagnosed
from slipstream.run.trials import TrialFailed, Trials
from slipstream.run.tried import Tried, save_tried

_SEEDS = 2**31
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
Say = Callable[[str], None]


def run(target: Target, wish: Wish, *, dry: bool = False, say: Say = lambda line: None) -> Outcome:
    """Run the script with all fixes that help and pass their check; `dry`: only try them.

    This process is started anew for the run, and comes here again with what was tried.
    """
    folder = os.environ.pop(TRIED, None)
    if folder is not None:
        return run_for_real(target, Path(folder))
    check_wish(wish)
    check_no_launcher(target)
    check_target(target)
    with _no_room_is_told():
        place = Path(tempfile.mkdtemp(prefix=PLACE))
    try:
        began = time.monotonic()
        with ending_in_order(), _no_room_is_told():
            tried, situation = _try_all(target, wish, place, dry, say)
        tried.seconds = time.monotonic() - began
        if dry:
            tried.skip_left()
            outcome = outcome_of(target, tried, situation)
            outcome.is_dry = True
            return outcome
        save_tried(tried, place)
        _start_anew(tried, place)
        return run_for_real(target, place)
    finally:
        rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _no_room_is_told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        folder = os.environ.get("TMPDIR", "/tmp")
        raise UsageError(
            f"There is no place for trials in {folder}: {error.strerror}. Set TMPDIR to a folder"
            " with some megabytes to spare; the script was not run."
        ) from None


def _try_all(
    target: Target, wish: Wish, place: Path, dry: bool, say: Say
) -> tuple[Tried, Situation]:
    ranks = find_ranks("trials")
    # Ranks draw other numbers, as they would if nobody gave them a seed.
    seed = ranks.first(random.SystemRandom().randrange(_SEEDS)) + ranks.rank
    if ranks.rank:
        say = _say_nothing
    try:
        return Trials(target, wish, seed, place, say, ranks).run()
    except TrialFailed as error:
        if dry:
            raise
        tried, situation = _untried(target, seed, ranks.rank, place, error)
        say(tried.warnings[0])
        return tried, situation


def _untried(
    target: Target, seed: int, rank: int, place: Path, error: TrialFailed
) -> tuple[Tried, Situation]:
    """The script runs as written: what ails it, or what a trial cannot do, it says itself."""
    why = why_not_tried(str(error))
    if why.startswith("EOFError"):
        why += " (trials have no standard input)"
    line = f"{target} did not get through a trial, so it runs as written, without fixes: {why}"
    situation = diagnosed(Capture(str(target), {}, ""), place)
    return Tried(seed, warnings=[line], rank=rank), situation


def why_not_tried(said: str) -> str:
    """The last error in what a trial has said, though the script may have said more behind it;
    its last line where there is none.

    >>> why_not_tried("Traceback (most recent call last):\\n  …\\nValueError: torn\\nbye")
    'ValueError: torn'
    """
    lines = said.strip().splitlines() or [""]
    begins = [number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    behind = lines[begins[-1] + 1 :] if begins else []
    return next((line for line in behind if line[:1].strip()), lines[-1])


_TRACEBACK = "Traceback (most recent call last)"


def _start_anew(tried: Tried, place: Path) -> None:
    """Returns only where that is not possible; the script then runs in this process."""
    environment = keeping() if "kept-memory" in tried.names else not_keeping()
    environment[TRIED] = str(place)
    environment.setdefault("PYTHONHASHSEED", str(tried.seed))
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _say_nothing(line: str) -> None:
    """Only the first rank speaks."""
