"""What speaks against a runtime before anything is built for it."""

import importlib.util

import torch

from slipstream.infer.subject import Subject


def why_not(subject: Subject, *packages: str) -> str | None:
    """A package that is not there, with the line that installs it, or a model on another device.
    Nothing is imported.
    """
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        line = f"pip install {' '.join(missing)}"
        return f"{' and '.join(missing)} {are} not installed: {line}"
    if subject.device.type != "cpu":
        return "the model is not on the CPU"
    return None


def why_one_already() -> str | None:
    """What is built for one thread is what torch's number of threads gives, if that is one."""
    return "torch takes one thread already" if torch.get_num_threads() == 1 else None


def why_no_calibration(subject: Subject) -> str | None:
    """Ranges of activations have to be seen."""
    if not subject.calibration:
        return "there is no data to calibrate with: a third of at least three batches is"
    return None
