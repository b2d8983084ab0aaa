"""The transforms of a dataset in their order, with what each takes and does."""

from dataclasses import dataclass
from typing import Any

from slipstream.doctor.attribute import Loading
from slipstream.doctor.rules.facts import transform_facts


@dataclass(frozen=True)
class Link:
    """One transform. `before` and `after`: [kind, elements of the plane] of a sample."""

    stage: str
    ms: float  # of a batch
    is_random: bool | None
    before: list[Any] | None
    after: list[Any] | None
    where: str | None

    @property
    def name(self) -> str:
        """As its class or function is called."""
        return self.stage.partition(": ")[2]


def chain_of(loading: Loading) -> list[Link]:
    """Those that ran, in the order in which the dataset holds them. Functions of libraries that
    ran inside a transform count for the one transform there is, if there is one alone.
    """
    facts = transform_facts(loading)
    stages = dict.fromkeys(f"transform: {name}" for name in loading.loader.transforms)
    found = []
    for stage in [*stages, *(s for s in facts if s not in stages)]:
        known = facts.get(stage, {})
        if not known.get("calls"):
            continue
        found.append(
            Link(
                stage, loading.stages.get(stage, 0.0), known.get("random"), known.get("in"),
                known.get("out"), known.get("where"),
            )
        )  # fmt: skip
    return found


def is_float(sample: list[Any] | None) -> bool:
    """Whether it has floating-point numbers."""
    return sample is not None and str(sample[0]).startswith(("float", "bfloat"))
