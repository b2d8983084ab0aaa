"""Words for where something is: a line of the user's files, a device, an input."""

import inspect
from pathlib import Path

import torch

from slipstream.infer.inputs import Inputs
from slipstream.infer.leaves import tensors_of


def source_of(model: torch.nn.Module, name: str) -> str | None:
    """Class, file and line of the nearest module, from the named one upwards, that is not torch's
    own; None if there is none, or its source is not known.
    """
    kinds = {each: type(part) for each, part in model.named_modules()}
    parts = name.split(".") if name else []
    for depth in range(len(parts), -1, -1):
        kind = kinds.get(".".join(parts[:depth]), torch.nn.Module)
        if kind.__module__.split(".")[0] == "torch":
            continue
        try:
            file, (_, line) = inspect.getsourcefile(kind), inspect.getsourcelines(kind)
        except (OSError, TypeError):
            return None
        return f"{kind.__qualname__}, {_short(Path(file or ''))}:{line}"
    return None


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def device_words(device: torch.device) -> str:
    """What it was measured on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"cpu with {threads} thread{'' if threads == 1 else 's'}"
    return str(device)


def input_words(inputs: Inputs) -> str:
    """Shapes of the tensors, with names where there are any.

    >>> input_words(Inputs((torch.ones(2, 3),), {"ids": torch.ones(4, dtype=torch.int64)}))
    '2x3, ids=4:int64'
    """
    named = [("", value) for value in inputs.args] + list(inputs.kwargs.items())
    words = []
    for name, value in named:
        for tensor in tensors_of(value):
            shape = "x".join(map(str, tensor.shape)) or "scalar"
            kind = "" if tensor.dtype == torch.float32 else f":{str(tensor.dtype)[6:]}"
            words.append(f"{name}={shape}{kind}" if name else f"{shape}{kind}")
    return ", ".join(words)
