"""A script may wait for whichever of its processes ends, until there are none. Processes that it
does not know of have to end before that.
"""

import os
from collections.abc import Callable
from typing import Any

from slipstream.patches import Patches


def watch(patches: Patches, end: Callable[[], None]) -> None:
    """Until they are undone, `end` is called before such a wait."""

    def before_all(original: Any) -> Any:
        def wait(*args: Any, **kwargs: Any) -> Any:
            end()
            return original(*args, **kwargs)

        return wait

    def before_any(original: Any) -> Any:
        def wait(pid: Any, *args: Any) -> Any:
            if isinstance(pid, int) and pid <= 0:
                end()
            return original(pid, *args)

        return wait

    def before_groups(original: Any) -> Any:
        def waitid(kind: Any, *args: Any) -> Any:
            if kind in (os.P_ALL, os.P_PGID):
                end()
            return original(kind, *args)

        return waitid

    for name in ("wait", "wait3"):
        patches.replace(os, name, before_all)
    for name in ("waitpid", "wait4"):
        patches.replace(os, name, before_any)
    patches.replace(os, "waitid", before_groups)
