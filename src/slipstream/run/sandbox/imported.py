"""Changes modules as soon as they are imported."""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

Change = Callable[[ModuleType], None]


def when_imported(changes: dict[str, Change]) -> None:
    """By the names of modules; those that are there by now are changed at once."""
    for name, change in changes.items():
        if (module := sys.modules.get(name)) is not None:
            change(module)
    sys.meta_path.insert(0, _WhenImported(changes))


class _WhenImported:
    """Leaves the finding of modules to others."""

    def __init__(self, changes: dict[str, Change]) -> None:
        self._changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """With what is to be done behind its import, which may not follow."""
        change = self._changes.get(name)
        if change is None:
            return None
        others = (finder for finder in sys.meta_path if not isinstance(finder, _WhenImported))
        finds = (getattr(finder, "find_spec", None) for finder in others)  # not in old ones
        found = (find(name, path, target) for find in finds if find is not None)
        spec: ModuleSpec | None = next((each for each in found if each is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
