"""What can be chosen for a training step."""

from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any, Literal, cast, get_args

import torch

from slipstream.errors import UsageError

# Matrix products with ten bits; autocast to bfloat16; autocast to float16 with a scaled loss.
Precision = Literal["tf32", "bf16", "fp16"]
# How an optimizer of torch goes over its parameters.
Way = Literal["fused", "foreach", "loop"]


@dataclass(frozen=True)
class Choices:
    """The options of `TrainStep`, checked. None and False leave things as they are.

    >>> Choices(update="fused", compile=True).name
    'fused + compile'
    >>> Choices().name
    'as written'
    """

    update: Way | None = None
    set_to_none: bool = True
    channels_last: bool = False
    cudnn_benchmark: bool = False
    own_kernels: bool = False
    precision: Precision | None = None
    compile: bool | str = False
    micro_batch: int | None = None
    clip_norm: float | None = None
    ema: float | None = None

    def __post_init__(self) -> None:
        _expect_one_of("precision", self.precision, get_args(Precision))
        _expect_one_of("update", self.update, get_args(Way))
        size, norm, decay = cast(
            "tuple[Any, Any, Any]", (self.micro_batch, self.clip_norm, self.ema)
        )
        if size is not None and not (_is_whole(size) and size >= 1):
            raise UsageError(f"micro_batch is {size!r}; expected samples, 1 or more.")
        if norm is not None and not (_is_number(norm) and norm > 0):
            raise UsageError(f"clip_norm is {norm!r}; expected a norm above 0.")
        if decay is not None and not (_is_number(decay) and 0 <= decay < 1):
            raise UsageError(f"ema is {decay!r}; expected a decay such as 0.999, below 1.")

    @property
    def name(self) -> str:
        """Of what makes it faster, in the order in which it is tried."""
        mode = f" {self.compile}" if isinstance(self.compile, str) else ""
        found = (
            self.update,
            None if self.set_to_none else "zeroed gradients",
            "channels-last" if self.channels_last else None,
            "cudnn-benchmark" if self.cudnn_benchmark else None,
            "own-kernels" if self.own_kernels else None,
            self.precision,
            f"compile{mode}" if self.compile else None,
            f"micro-batch {self.micro_batch}" if self.micro_batch else None,
        )
        return " + ".join(name for name in found if name) or "as written"

    @property
    def autocast(self) -> str | None:
        """Name of the type in torch that a forward pass computes in."""
        return {"bf16": "bfloat16", "fp16": "float16"}.get(self.precision or "")

    def as_dict(self) -> dict[str, Any]:
        """As keywords of `TrainStep`."""
        return asdict(self)


def _is_number(value: object) -> bool:
    return isinstance(value, Real | torch.Tensor) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _expect_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        listed = ", ".join(map(repr, known))
        raise UsageError(f"{name} is {value!r}; expected one of {listed}, or None.")
