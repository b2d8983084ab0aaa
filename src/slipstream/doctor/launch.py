"""Runs a script as Python would, with a recording around it."""

import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from slipstream.doctor.capture import Capture
from slipstream.errors import UsageError


@dataclass(frozen=True)
class Target:
    """A script or, with `is_module`, the name of a module, and its arguments."""

    name: str
    args: tuple[str, ...] = ()
    is_module: bool = False

    def __str__(self) -> str:
        return f"-m {self.name}" if self.is_module else self.name


@dataclass(frozen=True)
class Launched:
    """A run that is over: what was recorded, and the exit code that is the script's own."""

    capture: Capture
    exit_code: int


def launch(
    target: Target, *, steps: int | None, seconds: float | None, examines: bool = False
) -> Launched:
    """Run the target in this process, as its main program, and record it.

    Its output, its exit code and its traceback are its own. With `steps` and `seconds` it is
    stopped where it asks for the next batch; where it `examines`, behind the ladder.
    """
    code = None if target.is_module else _compiled(Path(target.name))
    # Imported before the script's clock starts: the recorder hooks it.
    from slipstream.doctor.record.session import Session, WindowEnded

    session = Session(str(target), steps=steps, seconds=seconds, examines=examines)
    arguments, path = sys.argv[:], sys.path[:]
    main = sys.modules["__main__"]
    exit_code, ended = 0, "script"
    session.start()
    try:
        _run(target, code)
    except WindowEnded:
        ended = "window"
    except SystemExit as leaving:
        exit_code = _exit_code(leaving)
    except KeyboardInterrupt:
        exit_code, ended = 130, "interrupted"
    except BaseException as error:
        _print_own_traceback(error)
        exit_code, ended = 1, "error"
    finally:
        capture = session.stop(ended)
        sys.argv[:], sys.path[:] = arguments, path
        sys.modules["__main__"] = main
    return Launched(capture, exit_code)


def _compiled(path: Path) -> CodeType:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"Cannot read the script {path}: {error.strerror}.") from None
    try:
        return compile(source, str(path), "exec")
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} is no Python script: {error}.") from None


def _run(target: Target, code: CodeType | None) -> None:
    sys.argv[:] = [target.name, *target.args]
    if code is None:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
        runpy.run_module(target.name, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(Path(target.name).resolve().parent))
    # Its own module, and it stays the main one: spawned processes and pickles look there.
    main = ModuleType("__main__")
    main.__file__ = target.name
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)  # noqa: T201
    return 1


def _print_own_traceback(error: BaseException) -> None:
    """As Python prints it, without our frames."""
    trace = error.__traceback__
    here = __file__
    while trace is not None and (
        trace.tb_frame.f_code.co_filename == here or "<frozen runpy>" in str(trace.tb_frame.f_code)
    ):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def parse_target(arguments: Sequence[str]) -> Target:
    """Of what stands behind the options: `script.py ARGS` or `-m module ARGS`."""
    if not arguments:
        raise UsageError("Give the script to look at: slipstream doctor train.py ARGS.")
    if arguments[0] == "-m":
        if len(arguments) < 2:
            raise UsageError("Behind -m stands the name of a module.")
        return Target(arguments[1], tuple(arguments[2:]), is_module=True)
    return Target(arguments[0], tuple(arguments[1:]))
