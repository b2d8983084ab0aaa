"""Whether the pictures of a loader's batches are decoded on the GPU: what `decode` means."""

from typing import Any

import torch

from slipstream.cuda import compile
from slipstream.errors import UsageError
from slipstream.loader.balance import Balance
from slipstream.loader.route import ENGINE


def balance_of(loader: Any, device: torch.device | None) -> Balance | None:
    """How the work is shared with the GPU; None where the processor does all of it.

    Raises `UsageError` or `MissingExtra` where `decode="gpu"` cannot be.
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
        raise UsageError(f'decode="gpu" cannot be: {reason}.')
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
