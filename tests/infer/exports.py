"""Subjects that the tests of all runtimes share: each is exported once."""

import dataclasses
from functools import cache
from typing import Any

import torch
from torch import nn

from slipstream.infer.inputs import inputs_of
from slipstream.infer.leaves import structure_of
from slipstream.infer.subject import Subject
from tests.infer.models import Detector, Encoder, Lstm, resnet, trained


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    hidden: list[torch.Tensor]
    best: torch.Tensor
    mask: torch.Tensor | None = None


class GivesADataclass(nn.Module):
    """Of floats, whole numbers and flags; one argument is no tensor, another is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 8)
        self.two = nn.Linear(8, 5)

    def forward(
        self, x: torch.Tensor, unused: torch.Tensor, *, scale: float = 1.0, mask: Any = None
    ) -> Answer:
        hidden = torch.relu(self.one(x)) * scale
        logits = self.two(hidden)
        return Answer(logits, [hidden, x], logits.argmax(-1), logits > 0)


NAMES = ("resnet", "encoder", "lstm", "detector", "dataclass")


@cache
def subject(name: str) -> Subject:
    """One of `NAMES`. It lives as long as the tests do."""
    torch.manual_seed(0)
    model, example = _MADE[name]()
    return Subject(model.eval(), inputs_of(example))


_MADE: dict[str, Any] = {
    "resnet": lambda: (resnet(), torch.randn(2, 3, 32, 32)),
    "encoder": lambda: (Encoder(), {"scale": torch.ones(1), "ids": torch.arange(24).view(2, 12)}),
    "lstm": lambda: (Lstm(), torch.randn(3, 7, 8)),
    "detector": lambda: (trained(Detector()), ({"picture": torch.randn(1, 3, 32, 32)},)),
    "dataclass": lambda: (GivesADataclass(), (torch.randn(4, 6), torch.randn(4, 2))),
}


def batch_of(name: str, size: int) -> Any:
    """Other inputs of a subject, with so many samples."""
    own = torch.Generator().manual_seed(size)

    def other(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape == (1,):
            return tensor
        shape = (size, *tensor.shape[1:])
        if tensor.is_floating_point():
            return torch.randn(shape, generator=own)
        return torch.randint(0, 100, shape, generator=own)

    return subject(name).inputs.map(other)


class NotAsked(nn.Module):
    """Stands for the model where the runtime has to answer."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the runtime was to answer")


def assert_same(found: Any, expected: Any, tolerance: float) -> None:
    """In structure, types and, but for a share, in values; looks into dataclasses, too."""
    if dataclasses.is_dataclass(expected):
        assert type(found) is type(expected)
        found, expected = vars(found), vars(expected)
    assert structure_of(found) == structure_of(expected)
    ones, others = (torch.utils._pytree.tree_leaves(each) for each in (found, expected))
    for one, other in zip(ones, others, strict=True):
        if isinstance(other, torch.Tensor):
            apart = (one.double() - other.double()).norm()
            assert apart <= tolerance * other.double().norm()
