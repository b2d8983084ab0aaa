"""Slipstream finds out why PyTorch training is slow, and makes it fast.

Importing this package imports nothing else: every name below is loaded when it is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipstream import infer
    from slipstream.augment.augment import Augment
    from slipstream.doctor.diagnose import diagnose
    from slipstream.doctor.watch import watch
    from slipstream.errors import SlipstreamError
    from slipstream.infer.optimize import optimize_model
    from slipstream.loader.loader import Loader
    from slipstream.loader.prefetch import prefetch_to_device
    from slipstream.pack.pack import pack_dataset
    from slipstream.run.faster import faster
    from slipstream.run.speed_up import speed_up
    from slipstream.store.dataset import open_dataset
    from slipstream.timer import Timer
    from slipstream.train.step import TrainStep
    from slipstream.train.tune import tune_step

    __version__: str

__all__ = [
    "Augment",
    "Loader",
    "SlipstreamError",
    "Timer",
    "TrainStep",
    "__version__",
    "diagnose",
    "faster",
    "infer",
    "open_dataset",
    "optimize_model",
    "pack_dataset",
    "prefetch_to_device",
    "speed_up",
    "tune_step",
    "watch",
]

_MODULES = {
    "Augment": "slipstream.augment.augment",
    "Loader": "slipstream.loader.loader",
    "SlipstreamError": "slipstream.errors",
    "Timer": "slipstream.timer",
    "TrainStep": "slipstream.train.step",
    "diagnose": "slipstream.doctor.diagnose",
    "faster": "slipstream.run.faster",
    "open_dataset": "slipstream.store.dataset",
    "optimize_model": "slipstream.infer.optimize",
    "pack_dataset": "slipstream.pack.pack",
    "prefetch_to_device": "slipstream.loader.prefetch",
    "speed_up": "slipstream.run.speed_up",
    "tune_step": "slipstream.train.tune",
    "watch": "slipstream.doctor.watch",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    value: object
    if name == "__version__":
        value = _read_version()
    elif name == "infer":
        value = import_module("slipstream.infer")
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module 'slipstream' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _read_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("slipstream")
    except PackageNotFoundError:
        return "0+not.installed"
