"""What can be done to a model, one thing at a time: the parts that variants are made of."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch

from slipstream.infer.subject import Subject, in_evaluation

# The same mathematics; fewer bits in between; trained numbers replaced by coarser ones.
Kind = Literal["exact", "mixed", "lossy"]
KINDS: tuple[Kind, ...] = ("exact", "mixed", "lossy")

# Places. An engine replaces what calls the model; libraries and threads are chosen around it.
GRAPH, LAYOUT, PRECISION, ENGINE, LIBRARY, AROUND = EVERYWHERE = tuple(range(6))

# Of changes whose kernels are oneDNN's own on a processor.
WITH_ONEDNN = tuple(place for place in EVERYWHERE if place != LIBRARY)

Why = str


def always(subject: Subject) -> Why | None:
    """Nothing speaks against it."""
    return None


@dataclass(frozen=True)
class Change:
    """`apply` takes a model of its own and returns the changed one; whatever it raises is a row of
    the table. `place` is where in a variant it comes: a smaller number is applied first. `why_not`
    says why it cannot be tried, in the words of the table. `builds_on` are the places whose changes
    it keeps when it is added to a variant.
    """

    name: str
    kind: Kind
    place: int
    apply: Callable[[torch.nn.Module, Subject], torch.nn.Module]
    why_not: Callable[[Subject], Why | None] = always
    builds_on: tuple[int, ...] = EVERYWHERE


@dataclass(frozen=True)
class Variant:
    """A model with some changes.

    >>> Variant().name
    'eager'
    """

    changes: tuple[Change, ...] = ()
    added: str = field(default="", compare=False)  # the change that was made last

    @property
    def name(self) -> str:
        """Of its changes, in the order in which they are made."""
        return " + ".join(change.name for change in self.changes) or "eager"

    @property
    def kind(self) -> Kind:
        """The least exact of its changes."""
        return KINDS[max((KINDS.index(change.kind) for change in self.changes), default=0)]

    def plus(self, change: Change) -> "Variant":
        """With one more; what had its place before is gone, and what it does not build on."""
        kept = [
            one
            for one in self.changes
            if one.place != change.place
            and one.place in change.builds_on
            and change.place in one.builds_on
        ]
        made = sorted((*kept, change), key=lambda change: change.place)
        return Variant(tuple(made), change.name)

    def why_not(self, subject: Subject) -> Why | None:
        """The first reason against one of its changes."""
        return next((why for one in self.changes if (why := one.why_not(subject))), None)

    def build(self, subject: Subject) -> torch.nn.Module:
        """A changed copy; the subject's model stays as it is."""
        from slipstream.infer.changes.around import InferenceMode

        model = subject.copied()
        for change in self.changes:
            model = change.apply(model, subject)
        return (
            in_evaluation(model) if hasattr(model, "is_without_autograd") else InferenceMode(model)
        )
