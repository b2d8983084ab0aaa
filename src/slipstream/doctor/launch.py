"""Runs a script with a recording around it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slipstream.doctor.capture import Capture
from slipstream.launch import Ran, Target, check_target, run_target

if TYPE_CHECKING:
    from slipstream.doctor.record.session import Session


@dataclass(frozen=True)
class Launched:
    """A run that is over: what was recorded, and the exit code that is the script's own."""

    capture: Capture
    exit_code: int


def launch(
    target: Target, *, steps: int | None, seconds: float | None, least_seconds: float = 0.0,
    examines: bool = False,
) -> Launched:  # fmt: skip
    """Run the target in this process, as its main program, and record it.

    Its output, its exit code and its traceback are its own. With `steps` and `seconds` it is
    stopped where it asks for the next batch; where it `examines`, behind the ladder.
    """
    check_target(target)
    # Imported before the script's clock starts: the recorder hooks it.
    from slipstream.doctor.record.session import Session

    session = Session(
        str(target), steps=steps, seconds=seconds, least_seconds=least_seconds, examines=examines
    )
    session.start()
    captures: list[Capture] = []

    def at_end(ran: Ran) -> None:
        captures.append(session.stop("window" if _fell(session, ran) else ran.ended))

    ran = run_target(target, at_end)
    return Launched(captures[0], 0 if _fell(session, ran) else ran.exit_code)


def _fell(session: "Session", ran: Ran) -> bool:
    """Whether it failed on the ladder, where it can write nothing: no failure of its own."""
    return session.ladder is not None and ran.ended == "error"
