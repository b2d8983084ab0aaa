"""Runs a script with a recording around it."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slipstream.doctor.capture import Capture
from slipstream.launch import Ran, Target, check_target, run_target

if TYPE_CHECKING:
    from slipstream.doctor.record.session import Session

_QUIET_S = 5.0


@dataclass(frozen=True)
class Launched:
    """A run that is over: what was recorded, and the exit code that is the script's own."""

    capture: Capture
    exit_code: int


def launch(
    target: Target, *, steps: int | None, seconds: float | None, least_seconds: float = 0.0,
    examines: bool = False, when_left: Callable[[Launched], int] | None = None,
    when_quiet: Callable[[], None] | None = None,
) -> Launched:  # fmt: skip
    """Run the target in this process, as its main program, and record it.

    Its output, its exit code and its traceback are its own. With `steps` and `seconds` it is
    stopped where it asks for the next batch; where it `examines`, behind the ladder. `when_left` is
    told where the process ends before this returns, and gives its exit code; `when_quiet`, where
    there is no step for long.
    """
    check_target(target)
    # Imported before the script's clock starts: the recorder hooks it.
    from slipstream.doctor.record.session import Session

    session = Session(
        str(target), steps=steps, seconds=seconds, least_seconds=least_seconds, examines=examines
    )
    ending = _Ending(session, len(target.args), when_left)
    session.start()
    ending.install()
    if when_quiet is not None:
        _tell_when_quiet(session, when_quiet)
    run_target(target, ending.at_end)
    assert ending.launched is not None
    return ending.launched


class _Ending:
    """Ends a recording once: behind the script, or where it leaves by `os._exit`, or hangs as the
    thread that it waits for was ended.
    """

    def __init__(
        self, session: "Session", arguments: int, when_left: Callable[[Launched], int] | None
    ) -> None:
        """`arguments`: how many the script has. They themselves may be secret."""
        self._session, self._arguments, self._when_left = session, arguments, when_left
        self._process = os.getpid()
        self._leave: Callable[[int], None] = os._exit
        self._lock = threading.Lock()
        self.launched: Launched | None = None

    def install(self) -> None:
        """Replace `os._exit`; `Session` puts it back."""
        if self._when_left is not None:
            self._session.patches.replace(os, "_exit", self._wrap_exit)
            self._session.threads.on_stuck = lambda: self._report_and_leave(0)

    def at_end(self, ran: Ran) -> None:
        """The script's own thread is at its end."""
        if ran.ended in ("script", "error"):
            try:
                self._session.threads.wait()
            except KeyboardInterrupt:
                ran = Ran("interrupted", 130)
        with self._lock:
            self._stop(ran)

    def _stop(self, ran: Ran, *, replays: bool = True) -> Launched:
        ended, exit_code = ran.ended, ran.exit_code
        if self._session.has_ended or _fell(self._session, ran):
            # What fails without the thread that we have ended is no failure of its own.
            ended, exit_code = "window", 0 if ran.ended == "error" else exit_code
        capture = self._session.stop(ended, replays=replays)
        capture.settings["arguments"] = self._arguments
        self.launched = Launched(capture, exit_code)
        return self.launched

    def _wrap_exit(self, original: Any) -> Any:
        def leave(status: int) -> None:
            if os.getpid() == self._process and self._session.is_recording:
                self._report_and_leave(status)
            original(status)

        return leave

    def _report_and_leave(self, status: int) -> None:
        with self._lock:
            if not self._session.is_recording:
                return
            with suppress(Exception):
                is_alone = self._session.has_ended or self._session.trace.is_loops_thread
                launched = self._stop(Ran("script", status), replays=is_alone)
                if self._when_left is not None:
                    status = self._when_left(launched)
            self._leave(status)


def _fell(session: "Session", ran: Ran) -> bool:
    """Whether it failed on the ladder, where it can write nothing: no failure of its own."""
    return session.ladder is not None and ran.ended == "error"


def _tell_when_quiet(session: "Session", tell: Callable[[], None]) -> None:
    def look() -> None:
        time.sleep(_QUIET_S)
        if session.is_recording and not session.has_begun:
            tell()

    # With a name of its own: those that Python gives are counted, and the script may show them.
    threading.Thread(target=look, name="slipstream-quiet", daemon=True).start()
