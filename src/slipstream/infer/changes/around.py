"""What is put around a model: inference mode, a number of threads, and what torch computes with."""

from typing import Any

import torch
from torch import nn

from slipstream.infer.change import AROUND, LIBRARY, Change
from slipstream.infer.subject import Subject
from slipstream.onednn import without_onednn


class InferenceMode(nn.Module):
    """Calls a model in inference mode."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives; its tensors take no part in autograd."""
        with torch.inference_mode():
            return self.model(*args, **kwargs)


class Threads(nn.Module):
    """Calls a model with a number of threads, and puts back the one before."""

    def __init__(self, model: nn.Module, count: int) -> None:
        super().__init__()
        self.model = model
        self.count = count

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives."""
        before = torch.get_num_threads()
        if before == self.count:
            return self.model(*args, **kwargs)
        torch.set_num_threads(self.count)
        try:
            return self.model(*args, **kwargs)
        finally:
            torch.set_num_threads(before)


class WithoutOneDnn(nn.Module):
    """Calls a model with torch's own kernels and BLAS, and puts back what was before."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives."""
        with without_onednn():
            return self.model(*args, **kwargs)


def _why_not_without_onednn(subject: Subject) -> str | None:
    if subject.device.type != "cpu":
        return "the model is not on the CPU"
    if not torch._C._has_mkldnn or not torch._C._get_mkldnn_enabled():
        return "torch does not use oneDNN"
    return None


# On some processors oneDNN is the slower one, for small products above all.
WITHOUT_ONEDNN = Change(
    "without oneDNN", "exact", LIBRARY, lambda model, _: WithoutOneDnn(model),
    _why_not_without_onednn,
)  # fmt: skip


def threads(count: int) -> Change:
    """A change to this number of threads."""

    def why_not(subject: Subject) -> str | None:
        if subject.device.type != "cpu":
            return "the model is not on the CPU"
        if torch.get_num_threads() == count:
            return f"{count} is the number of threads already"
        return None

    name = "1 thread" if count == 1 else f"{count} threads"
    return Change(name, "exact", AROUND, lambda model, _: Threads(model, count), why_not)


def thread_counts() -> list[int]:
    """Those worth a try: one, and half of what torch takes. More than that are not for us to take:
    other processes may have the rest of the cores.
    """
    own = torch.get_num_threads()
    return sorted({1, max(1, own // 2)} - {own})
