"""Runs a script in this process as Python would; output, exit code and traceback are its own."""

import builtins
import importlib.util
import os
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal

from slipstream.errors import UsageError
from slipstream.patches import Patches
from slipstream.tracebacks import hide_own_frames
from slipstream.warned import blame_the_script


class WindowEnded(BaseException):
    """Enough was seen. Raised in the loop, where it asks for a batch or begins a step; no error,
    so that what catches errors lets it through.
    """


@dataclass(frozen=True)
class Target:
    """A script or, with `is_module`, the name of a module, and its arguments."""

    name: str
    args: tuple[str, ...] = ()
    is_module: bool = False

    def __str__(self) -> str:
        return f"-m {self.name}" if self.is_module else self.name


_LOOK_S = 0.05
_IDLE_S = 10.0
_BETWEEN_S, _TIMES = 60.0, 4  # as long as the longest step, an evaluation may take
_BEFORE_S, _IDLE_CPU = 300.0, 0.1  # to get ready, while so much of a core is used


@dataclass(frozen=True)
class _Program:
    """What Python knows of the main program."""

    main: ModuleType
    argv: list[str]
    path: list[str]

    @staticmethod
    def now() -> "_Program":
        return _Program(sys.modules["__main__"], sys.argv[:], sys.path[:])

    def restore(self) -> None:
        sys.modules["__main__"] = self.main
        sys.argv[:], sys.path[:] = self.argv, self.path


_scripts: list[_Program] = []  # that have run


@dataclass(frozen=True)
class Ran:
    """How a run ended, and the exit code that is the script's own."""

    ended: Literal["script", "window", "error", "interrupted"]
    exit_code: int = 0


def parse_target(arguments: Sequence[str], command: str, options: Sequence[str] = ()) -> Target:
    """Of what stands behind the options: `script.py ARGS` or `-m module ARGS`. Where there is an
    option that nobody knows, `options` are those that there are.
    """
    if not arguments:
        raise UsageError(f"Give the script to run: slipstream {command} train.py ARGS.")
    if arguments[0] == "-m":
        if len(arguments) < 2:
            raise UsageError("Behind -m stands the name of a module.")
        return Target(arguments[1], tuple(arguments[2:]), is_module=True)
    name = arguments[0]
    if name == "-":
        raise UsageError("A script cannot come from standard input; give it as a file.")
    if name.startswith("-") and not Path(name).exists():
        close = get_close_matches(name.partition("=")[0], options, 1)
        hint = f"Did you mean {close[0]}?" if close else f"slipstream {command} --help lists all."
        raise UsageError(f"There is no option {name}. {hint}")
    return Target(name, tuple(arguments[1:]))


def check_target(target: Target) -> None:
    """Raises `UsageError` for a script that cannot be read or is none, or a module that is not
    there.
    """
    if target.is_module:
        _check_module(target.name)
    else:
        _compiled(Path(target.name))


def run_target(
    target: Target, at_end: Callable[[Ran], None] = lambda ran: None, *,
    tells_interrupts: bool = False,
) -> Ran:  # fmt: skip
    """Run it as the main program; whatever it raises ends here. `at_end` is called while its module
    is still the main one. In children that it forks and lets run to the end, this exits. Where it
    `tells_interrupts`, these have a traceback, too.
    """
    code = None if target.is_module else _compiled(Path(target.name))
    before = _Program.now()
    process = os.getpid()
    patches = Patches()
    blame_the_script(patches)
    try:
        ran = _end_of(target, code, tells_interrupts)
        if os.getpid() != process:
            sys.exit(ran.exit_code)  # a child that the script has forked: nobody waits for more
        at_end(ran)
    finally:
        patches.undo()
        _scripts[:] = [_Program.now()]
        before.restore()
    return ran


def end_as_the_script() -> None:
    """Nothing of ours is to come any more: what Python does at its end, such as the functions that
    the script has registered for it, finds the script's own module, arguments and path.
    """
    if _scripts:
        _scripts[0].restore()


def drop_own_path() -> None:
    """The first place where Python looks for modules is the script's, not ours."""
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]


def wait_for_threads(signs: Callable[[], int], is_enough: Callable[[], bool]) -> None:
    """As Python does at the end of a script, for threads that train, of which there are `signs`.
    For others, who may wait for that end themselves, not for long.
    """
    seen, since, used = signs(), time.monotonic(), time.process_time()
    longest = _IDLE_S
    while not is_enough() and any(map(is_waited_for, threading.enumerate())):
        took, cpu = time.monotonic() - since, time.process_time() - used
        if signs() != seen:
            seen, since, longest = signs(), time.monotonic(), max(_BETWEEN_S, _TIMES * took)
        elif took > longest and (seen or took > _BEFORE_S or cpu < _IDLE_CPU * took):
            return
        time.sleep(_LOOK_S)


def is_waited_for(thread: threading.Thread) -> bool:
    """Whether Python would wait for it before it exits."""
    if thread.daemon or not thread.is_alive() or thread is threading.main_thread():
        return False
    if type(thread).__module__ == "concurrent.futures.process":
        return False  # of a pool, which is told to go
    frame = sys._current_frames().get(thread.ident or 0)
    # So is a pool's thread without work.
    return frame is None or frame.f_globals.get("__name__") != "concurrent.futures.thread"


def _end_of(target: Target, code: CodeType | None, tells_interrupts: bool) -> Ran:
    try:
        _run(target, code)
    except WindowEnded:
        return Ran("window")
    except SystemExit as leaving:
        return Ran("script", _exit_code(leaving))
    except KeyboardInterrupt as error:
        if tells_interrupts:
            _print_own_traceback(error)
        return Ran("interrupted", 130)
    except BaseException as error:
        _print_own_traceback(error)
        return Ran("error", 1)
    return Ran("script")


def _check_module(name: str) -> None:
    """The package that it is in, or itself: what lies inside of it, only its own code knows."""
    top = name.partition(".")[0]
    own = [] if getattr(sys.flags, "safe_path", False) else [str(Path.cwd())]
    before = sys.path[:]
    sys.path[:0] = own
    try:
        is_there = bool(top) and importlib.util.find_spec(top) is not None
    except ValueError:
        is_there = bool(top)  # imported, by something that does not say from where
    finally:
        sys.path[:] = before
    if not is_there:
        raise UsageError(
            f"There is no module {name}: neither {Path.cwd()} nor the packages of"
            f" {sys.executable} have it. Is another folder or environment meant?"
        )


def _compiled(path: Path) -> CodeType:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"Cannot read the script {path}: {error.strerror}.") from None
    try:
        return compile(source, str(path.absolute()), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} is no Python script: {error}.") from None


def _run(target: Target, code: CodeType | None) -> None:
    sys.argv[:] = [target.name, *target.args]
    if not getattr(sys.flags, "safe_path", False):
        own = Path(target.name).resolve().parent if code is not None else Path.cwd()
        sys.path.insert(0, str(own))
    # Its own module, and it stays the main one: spawned processes and pickles look there.
    main = ModuleType("__main__")
    if code is None:
        name, spec, code = _module(target.name)
        sys.argv[0] = spec.origin or name
        main.__dict__.update(
            __spec__=spec, __loader__=spec.loader, __package__=spec.parent, __cached__=spec.cached
        )
        code_file = spec.origin
    else:
        code_file = code.co_filename
    # As Python has it: still right where the script changes the folder.
    main.__file__ = code_file
    main.__dict__["__builtins__"] = builtins  # the module, as only the main one has it
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _module(name: str) -> tuple[str, Any, CodeType]:
    """As `python -m` finds it."""
    found: tuple[str, Any, CodeType] = runpy._get_module_details(name)  # type: ignore[attr-defined]
    return found


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)  # noqa: T201
    return 1


def _print_own_traceback(error: BaseException) -> None:
    """As Python prints it, without our frames; by the script's own function where it has one."""
    trace = error.__traceback__
    here = __file__
    while trace is not None and (
        trace.tb_frame.f_code.co_filename == here or "<frozen runpy>" in str(trace.tb_frame.f_code)
    ):
        trace = trace.tb_next
    error.__traceback__ = trace
    hide_own_frames(error)
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(error)
        return
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException as failed:
        traceback.print_exception(failed)
