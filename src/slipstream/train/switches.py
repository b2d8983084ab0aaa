"""What can be switched in a training step, in the order in which it is tried."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from slipstream.processor import why_no
from slipstream.tf32 import tf32_of
from slipstream.train import compiled, ways
from slipstream.train.choices import Choices, Way
from slipstream.train.subject import Subject

# The same mathematics in another order of sums; fewer bits in between.
Kind = Literal["exact", "mixed"]
KINDS: tuple[Kind, ...] = ("exact", "mixed")


@dataclass(frozen=True)
class Switch:
    """`choose` gives the choices with it. `why_not` says why it cannot be tried, in the words of
    the table, and `why_hardly` why it is not worth a try unless somebody asks for it by name.
    `share` is the part of the time left that it may take.
    """

    name: str
    kind: Kind
    choose: Callable[[Choices], Choices]
    why_not: Callable[[Subject, Choices], str | None]
    share: float = 0.3
    why_hardly: Callable[[Subject], str | None] = lambda subject: None


def _of(name: str, kind: Kind, why_not: Any, share: float = 0.3, **chosen: Any) -> Switch:
    return Switch(name, kind, lambda choices: replace(choices, **chosen), why_not, share)


def _update(way: Way) -> Switch:
    def why_not(subject: Subject, choices: Choices) -> str | None:
        return ways.why_not(subject.optimizer, way)

    return _of(way, "exact", why_not, update=way)


def _always(subject: Subject, choices: Choices) -> str | None:
    return None


def _why_not_channels_last(subject: Subject, choices: Choices) -> str | None:
    layers = (nn.Conv2d, nn.ConvTranspose2d)
    found = [part for part in subject.model.modules() if isinstance(part, layers)]
    if not found:
        return "there is no 2-d convolution"
    if all(_is_channels_last(part.weight) for part in found):
        return "it is on"
    return None


def _is_channels_last(weight: torch.Tensor) -> bool:
    return weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()


def _why_not_cuda(subject: Subject, choices: Choices) -> str | None:
    return None if subject.device.type == "cuda" else "the model is not on a CUDA device"


def _why_not_benchmark(subject: Subject, choices: Choices) -> str | None:
    if why := _why_not_cuda(subject, choices):
        return why
    if torch.backends.cudnn.benchmark:
        return "it is on"
    if torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic:
        return "deterministic algorithms are asked for"
    return None


def _why_not_own_kernels(subject: Subject, choices: Choices) -> str | None:
    if subject.device.type != "cpu":
        return "the model is not on the CPU"
    if not torch._C._has_mkldnn or not torch._C._get_mkldnn_enabled():
        return "torch does not use oneDNN"
    return None


def _why_not_float(subject: Subject, choices: Choices) -> str | None:
    if not any(one.dtype == torch.float32 for one in subject.model.parameters()):
        return "no parameter is float32"
    return None


def _why_not_tf32(subject: Subject, choices: Choices) -> str | None:
    if why := _why_not_cuda(subject, choices) or _why_not_float(subject, choices):
        return why
    if torch.cuda.get_device_capability(subject.device)[0] < 8:
        return "this device does not have it"
    return "it is on" if tf32_of(torch.backends.cuda.matmul) else None


def _is_emulated(subject: Subject) -> str | None:
    has_it: Any = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    is_fast = why_no("bf16") is None and torch._C._has_mkldnn and has_it()
    if subject.device.type != "cpu" or is_fast:
        return None
    return 'this processor has no bfloat16; only=["bf16"] tries it all the same'


def _why_not_half(subject: Subject, choices: Choices) -> str | None:
    return _why_not_cuda(subject, choices) or _why_not_float(subject, choices)


def _why_not_compiled(subject: Subject, choices: Choices) -> str | None:
    return compiled.why_not(subject.model, subject.device)


def _why_not_compiled_cuda(subject: Subject, choices: Choices) -> str | None:
    return _why_not_cuda(subject, choices) or _why_not_compiled(subject, choices)


def _why_not_graphs(subject: Subject, choices: Choices) -> str | None:
    if choices.micro_batch:
        return "gradients that add up are not for CUDA graphs"
    return _why_not_compiled_cuda(subject, choices)


SWITCHES: tuple[Switch, ...] = (
    _update("fused"),
    _update("foreach"),
    _of("zeroed gradients", "exact", _always, set_to_none=False),
    _of("channels-last", "exact", _why_not_channels_last, channels_last=True),
    _of("cudnn-benchmark", "exact", _why_not_benchmark, cudnn_benchmark=True),
    _of("own-kernels", "exact", _why_not_own_kernels, own_kernels=True),
    _of("tf32", "mixed", _why_not_tf32, precision="tf32"),
    replace(_of("bf16", "mixed", _why_not_float, precision="bf16"), why_hardly=_is_emulated),
    _of("fp16", "mixed", _why_not_half, precision="fp16"),
    _of("compile", "exact", _why_not_compiled, 0.9, compile=True),
    _of(
        "compile max-autotune", "exact", _why_not_compiled_cuda, 0.6,
        compile="max-autotune-no-cudagraphs",
    ),
    _of("compile cudagraphs", "exact", _why_not_graphs, 0.6, compile="reduce-overhead"),
)  # fmt: skip
