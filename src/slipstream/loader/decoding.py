"""Whether the pictures of a loader's batches are decoded on the GPU: what `decode` means."""

from typing import Any

import torch

from slipstream.cuda import compile
from slipstream.errors import UsageError
from slipstream.loader.balance import Balance
from slipstream.loader.route import ENGINE


def check_device(device: Any, decode: str) -> None:
    """Raises `UsageError` where a loader that is being made asks for CUDA and there is none. One
    that comes from elsewhere, unpickled say, is told when it is iterated.
    """
    asked = [f"device={str(device)!r}"] if _wants_cuda(device) else []
    asked += ['decode="gpu"'] if decode == "gpu" else []
    if asked and not torch.cuda.is_available():
        are, them = ("are", "them") if len(asked) > 1 else ("is", "it")
        raise UsageError(
            f"{' and '.join(asked)} {are} not possible: torch {torch.__version__} sees no CUDA"
            f" device here. Leave {them} out: the processor makes batches, and they stay there."
        )


def _wants_cuda(device: Any) -> bool:
    if device is None or (isinstance(device, int) and not torch.accelerator.is_available()):
        return device is not None  # a bare number: torch does not say of what
    return torch.device(device).type == "cuda"


def decode_line(loader: Any) -> str:
    """Who decodes pictures, and why, for people; empty where there are none to decode."""
    choice = loader.choice
    route = choice.route
    if choice.decode:
        return f"{choice.decode} ({choice.decode_why})"
    if route.kind != ENGINE or not route.reader.pictures:
        return ""
    if loader.decode == "cpu":
        return "on the processor (as given)"
    if not _wants_cuda(loader.device):
        return "on the processor (batches stay there)"
    if not route.reader.tiles:
        return "on the processor (a GPU decodes packed JPEGs only)"
    if loader.decode == "gpu":
        return "on the GPU (as given)"
    return "on the processor (to begin with; measured in training)"


def balance_of(loader: Any, device: torch.device | None) -> Balance | None:
    """How the work is shared with the GPU; None where the processor does all of it.

    Raises `UsageError` or `MissingExtra` where `decode="gpu"` is not possible.
    """
    choice = loader.choice
    route = choice.route
    if loader.decode == "cpu":
        return None
    reason = ""
    if device is None:
        reason = 'batches stay on the processor: give the loader device="cuda"'
    elif route.kind != ENGINE or not (route.reader.pictures and route.reader.tiles):
        reason = (
            "only packed JPEGs can be decoded there: slipstream pack SOURCE DATASET, then"
            " open_dataset(DATASET)"
        )
    if reason and loader.decode == "gpu":
        raise UsageError(f'decode="gpu" is not possible: {reason}.')
    if reason:
        return None
    assert device is not None
    if loader.decode == "gpu":
        compile.load_kernels(device)
        choice.decode, choice.decode_why = "on the GPU", "as given"
        return Balance(choice, share=1.0)
    reason = compile.why_not(device) or _why_not_compiled(device)
    if reason:
        choice.decode, choice.decode_why = "on the processor", reason
        return None
    if loader._balance is None or not loader._balance.is_of(choice):
        loader._balance = Balance(choice)
    loader._balance.begin()
    balance: Balance = loader._balance
    return balance


def _why_not_compiled(device: torch.device) -> str:
    try:
        compile.load_kernels(device)
    except (
        Exception
    ) as error:  # of the compiler, the driver or the disk: the processor does without
        return f"the kernels cannot be loaded: {error}"
    return ""
