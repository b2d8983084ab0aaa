"""Programs that report to a server: a trial is not to be seen there."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_SWITCHES = {
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Its new versions ask for this where a store in files is named.
    "MLFLOW_ALLOW_FILE_STORE": "true",
}


def switches(folder: Path) -> dict[str, str]:
    """For the environment of a trial; `folder` is thrown away behind it."""
    return {**_SWITCHES, "MLFLOW_TRACKING_URI": (folder / "mlflow").as_uri()}


def silence() -> None:
    """What a script says in its calls is stronger than the environment: there as well."""
    sys.meta_path.insert(0, _WhenImported({"wandb": _silence_wandb, "mlflow": _silence_mlflow}))


def _silence_wandb(module: ModuleType) -> None:
    original = module.init

    def init(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "mode": "disabled"})

    module.init = init  # type: ignore[attr-defined]


def _silence_mlflow(module: ModuleType) -> None:
    module.set_tracking_uri = lambda uri: None  # type: ignore[attr-defined]
    client = module.MlflowClient
    original = client.__init__

    def init(self: Any, tracking_uri: Any = None, registry_uri: Any = None) -> None:
        original(self)

    client.__init__ = init


class _WhenImported:
    """Changes modules as soon as they are there. Leaves the finding of them to others."""

    def __init__(self, changes: dict[str, Callable[[ModuleType], None]]) -> None:
        self._changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """With what is to be done behind its import."""
        change = self._changes.pop(name, None)
        spec = None if change is None else importlib.util.find_spec(name)
        if change is None or spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
