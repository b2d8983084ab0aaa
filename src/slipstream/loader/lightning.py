"""What Lightning wants to know of a loader that it may have to make anew."""

from typing import Any

from torch.utils.data import DataLoader


def note_arguments(loader: DataLoader[Any], given: dict[str, Any]) -> bool:
    """Note the arguments a loader is made with, where Lightning would miss them. Returns whether it
    did: then `note_end` has to be called at the end of `__init__`.

    In the hooks that make loaders Lightning wraps `__init__` of all classes of DataLoaders that
    exist. Ours may come into being in there, by its first use; what it hands to torch would be
    taken for what the user gave.
    """
    if "__old__init__" not in vars(DataLoader) or "__old__init__" in vars(type(loader)):
        return False
    noted = {"args": (), "kwargs": given, "arg_names": (), "default_kwargs": {}}
    for name, value in noted.items():
        object.__setattr__(loader, f"__pl_saved_{name}", value)
    object.__setattr__(loader, "__pl_inside_init", True)
    return True


def note_end(loader: DataLoader[Any]) -> None:
    """Attributes that are set from now on are changes of the user's."""
    object.__setattr__(loader, "__pl_inside_init", False)
