"""What is to be measured: layers of the model, and others that could stand in their place."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slipstream.infer.lint.layer import Layer
from slipstream.infer.lint.trace import Op, Trace


@dataclass(frozen=True)
class Case:
    """Equal layers, or equal groups of layers. `where` has the modules of each; there are as many
    as the model calls. `seconds` are those that all of them took in the recorded call.
    """

    now: tuple[Layer, ...]
    others: Mapping[str, tuple[Layer, ...]]
    where: tuple[tuple[str, ...], ...]
    seconds: float
    what: str = ""

    def __str__(self) -> str:
        return self.what or str(self.now[0])


@dataclass(frozen=True)
class Seen:
    """What a rule looks at. `tiny_s` is what a layer of each kind takes on one number."""

    trace: Trace
    tiny_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """`find` gives cases; `says` is what a finding means, `absent` what is said when there are no
    cases, `do` what helps.
    """

    name: str
    says: str
    absent: str
    do: str
    find: Callable[[Seen], list[Case]]


def equal_layers(ops: Iterable[Op]) -> dict[Layer, list[Op]]:
    """Layers that are called alike."""
    found: dict[Layer, list[Op]] = {}
    for op in ops:
        if op.layer is not None:
            found.setdefault(op.layer, []).append(op)
    return found


def case_of(layer: Layer, ops: Sequence[Op], others: Mapping[str, Layer]) -> Case:
    """Of equal layers that stand alone."""
    return Case(
        (layer,),
        {what: (other,) for what, other in others.items()},
        tuple((op.module,) for op in ops),
        sum(op.seconds for op in ops),
    )
