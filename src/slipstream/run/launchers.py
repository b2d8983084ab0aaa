"""Programs that start the ranks of a script: they stand before us, not behind."""

import sys
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError
from slipstream.launch import Target

_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_SCRIPTS = ("torchrun", "accelerate")


def check_no_launcher(target: Target) -> None:
    """Raises `UsageError` for one: the processes that it starts could not be followed."""
    name = target.name
    if name in _MODULES if target.is_module else Path(name).name in _SCRIPTS:
        raise UsageError(
            f"{target} starts the script in other processes, which cannot be tried from here."
            " Start slipstream in each of them: torchrun … -m slipstream run train.py."
        )


def refuse_to_start_ranks(target: Target) -> None:
    """In a trial: a script that starts its ranks itself says so at once, instead of waiting for
    them until nobody waits for it.
    """
    import torch.multiprocessing

    def start_processes(*args: Any, **kwargs: Any) -> Any:
        raise UsageError(
            f"{target} starts processes that train (torch.multiprocessing.spawn), which cannot be"
            " tried from here"
        )

    # The package's `spawn` is the function of that name.
    for module in (torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"]):
        module.start_processes = start_processes  # type: ignore[attr-defined]
