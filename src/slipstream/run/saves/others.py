"""Other processes that could look for a file: those that the script has started itself."""

import multiprocessing
import os
import subprocess
import sys
import weakref
from typing import Any

from slipstream.doctor.record.places import is_users
from slipstream.patches import Patches

_LOADERS = ("torch.utils.data._utils.worker", "slipstream.")  # read samples, and nothing of ours
_COMPILERS = ("torch._inductor", "torch._dynamo", "triton")


class Others:
    """Processes beside this one that are no workers of a loader. While one lives, it may be told of
    a file in ways that nobody can watch: pipes, sockets, events.
    """

    def __init__(self) -> None:
        # Workers of loaders are not asked for: of those that are there already it is not known.
        self._workers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._programs: weakref.WeakSet[Any] = weakref.WeakSet()
        self._forked = False

    def install(self, patches: Patches) -> None:
        """Processes that start are looked at."""
        patches.replace(multiprocessing.process.BaseProcess, "start", self._starts)
        patches.replace(subprocess.Popen, "__init__", self._begins)
        for name in ("fork", "posix_spawn", "posix_spawnp"):
            patches.replace(os, name, self._forks)

    def live(self) -> bool:
        """Whether there is one."""
        return (
            self._forked
            or any(child not in self._workers for child in multiprocessing.active_children())
            or any(_runs(program) for program in list(self._programs))
        )

    def _starts(self, original: Any) -> Any:
        def start(process: Any) -> Any:
            module = getattr(getattr(process, "_target", None), "__module__", None) or ""
            if module.startswith(_LOADERS):
                self._workers.add(process)
            return original(process)

        return start

    def _begins(self, original: Any) -> Any:
        def begin(program: Any, *args: Any, **kwargs: Any) -> None:
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_globals.get("__name__") == "subprocess":
                frame = frame.f_back
            if not str(frame.f_globals.get("__name__")).startswith(_COMPILERS):
                self._programs.add(program)
            original(program, *args, **kwargs)

        return begin

    def _forks(self, original: Any) -> Any:
        def fork(*args: Any, **kwargs: Any) -> Any:
            if is_users(sys._getframe(1).f_code):
                self._forked = True
            return original(*args, **kwargs)

        return fork


def _runs(program: Any) -> bool:
    """Without taking its exit code from whoever waits for it."""
    if getattr(program, "pid", None) is None or program.returncode is not None:
        return False
    try:
        return os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except OSError:  # somebody else has waited for it
        return False
