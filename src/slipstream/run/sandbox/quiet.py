"""What shows outside of a process: a trial is not to be seen, on servers or on the screen."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from slipstream.run.sandbox.imported import when_imported

_SWITCHES = {
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "MPLBACKEND": "Agg",  # a window would wait to be closed
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Its new versions ask for this where a store in files is named.
    "MLFLOW_ALLOW_FILE_STORE": "true",
}


# A run that goes on is not in the trial's own store.
_LEFT_OUT = ("MLFLOW_RUN_ID",)


def quieted(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of a trial; `folder` is thrown away behind it."""
    store = (folder / "mlflow").as_uri()
    kept = {name: value for name, value in environment.items() if name not in _LEFT_OUT}
    return {**kept, **_SWITCHES, "MLFLOW_TRACKING_URI": store, "MLFLOW_REGISTRY_URI": store}


def silence() -> None:
    """What a script says in its calls is stronger than the environment: there as well."""
    when_imported({"wandb": _silence_wandb, "mlflow": _silence_mlflow})


def _silence_wandb(module: ModuleType) -> None:
    original: Any = getattr(module, "init", None)
    if original is None:
        return

    def init(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "mode": "disabled"})

    module.init = init  # type: ignore[attr-defined]


_MLFLOW = (
    "mlflow", "mlflow.tracking", "mlflow.tracking._tracking_service.utils",
    "mlflow.tracking._model_registry.utils",
)  # fmt: skip


def _silence_mlflow(module: ModuleType) -> None:
    store = os.environ.get("MLFLOW_TRACKING_URI")
    for place in filter(None, map(sys.modules.get, _MLFLOW)):
        for name in ("set_tracking_uri", "set_registry_uri"):
            if hasattr(place, name):
                if place is module:
                    getattr(place, name)(store)  # stronger than a variable that the script sets
                setattr(place, name, lambda uri: None)
    client: Any = getattr(module, "MlflowClient", None)
    if client is None:
        return
    original = client.__init__

    def init(self: Any, tracking_uri: Any = None, registry_uri: Any = None) -> None:
        original(self)

    client.__init__ = init
