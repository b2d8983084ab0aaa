"""Processes that a trial starts are in its sandbox, too, where Python starts them."""

import _posixsubprocess
import multiprocessing.util
import os
from pathlib import Path
from typing import Any

from slipstream.run.sandbox.layers import Layers

_ENTER = "from slipstream.run.sandbox.enter import enter; enter({folder!r})\n"
_FOLDER = 4  # of the arguments of `fork_exec`
_TRACKER = "multiprocessing.resource_tracker"  # removes what others have left, and nothing else


def wrapped(layers: Layers, folder: Path) -> dict[Any, Any]:
    """Functions that start a Python anew: by `spawn` and `forkserver`, or in the place of this. And
    that by which `subprocess` starts any program, in a folder that it may not see.
    """
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

    start: Any = _posixsubprocess.fork_exec

    def fork_exec(*args: Any) -> Any:
        given = [*args]
        if given[_FOLDER] is not None:
            found = layers.find(given[_FOLDER])
            if found.own is not None and found.old is None:
                given[_FOLDER] = layers.mapped(found.path)
        return start(*given)

    return {
        spawn: spawnv_passfds,
        start: fork_exec,
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
