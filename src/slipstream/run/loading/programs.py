"""Programs that the script feeds through a pipe. Such a program ends when nobody can write to the
pipe any more, and a worker that was forked meanwhile could.
"""

import subprocess
import weakref
from typing import Any

from slipstream.patches import Patches

_fed: "weakref.WeakSet[subprocess.Popen[Any]]" = weakref.WeakSet()


def watch(patches: Patches) -> None:
    """From now on."""

    def wrap(original: Any) -> Any:
        def init(program: Any, *args: Any, **kwargs: Any) -> None:
            original(program, *args, **kwargs)
            if getattr(program, "stdin", None) is not None:
                _fed.add(program)

        return init

    patches.replace(subprocess.Popen, "__init__", wrap)


def are_fed() -> bool:
    """Whether there are any."""
    return any(program.stdin is not None and not program.stdin.closed for program in [*_fed])
