"""Processes that a trial starts are in its sandbox, too, where Python starts them."""

import multiprocessing.util
import os
from pathlib import Path
from typing import Any

_ENTER = "from slipstream.run.sandbox.enter import enter; enter({folder!r})\n"
_TRACKER = "multiprocessing.resource_tracker"  # removes what others have left, and nothing else


def wrapped(folder: Path) -> dict[Any, Any]:
    """Functions that start a Python anew: by `spawn` and `forkserver`, or in the place of this."""
    # Not there on Windows alone.
    spawn: Any = multiprocessing.util.spawnv_passfds
    own, place = os.getpid(), str(folder)

    def spawnv_passfds(path: Any, args: Any, passfds: Any) -> Any:
        return spawn(path, _entering(list(args), place), passfds)

    def refusing(original: Any) -> Any:
        def execute(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == own:
                raise RuntimeError("a trial cannot follow a script that starts itself anew")
            return original(*args, **kwargs)  # a forked process, as subprocess has them

        return execute

    return {
        spawn: spawnv_passfds,
        os.execv: refusing(os.execv),
        os.execve: refusing(os.execve),
    }


def _entering(args: list[Any], folder: str) -> list[Any]:
    """A command line of Python whose code enters the sandbox first."""
    for number, word in enumerate(args[:-1]):
        if isinstance(word, str) and word == "-c":
            code = args[number + 1]
            if _TRACKER not in code:
                args[number + 1] = _ENTER.format(folder=folder) + code
            break
    return args
