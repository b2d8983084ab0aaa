"""Programs that start the ranks of a script: they stand before us, not behind."""

from pathlib import Path

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
