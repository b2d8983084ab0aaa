"""Passes of the models of a run: which train, which evaluate, how long they take."""

from dataclasses import dataclass
from typing import Any

from slipstream.doctor.attribute import EVALUATION
from slipstream.doctor.capture import NEXT, START, Span
from slipstream.doctor.learning import forward_passes
from slipstream.doctor.rules.case import Case

_STEADY_SHAPES = 3


@dataclass(frozen=True)
class Pass:
    """A forward pass. `learns`: a backward pass follows before the next batch."""

    span: Span
    model: int
    training: bool
    with_grad: bool
    learns: bool

    @property
    def ms(self) -> float:
        """On the clock that counts."""
        start, end = self.span.device or (self.span.start, self.span.end)
        return (end - start) * 1e-6


def passes(case: Case) -> list[Pass]:
    """All of the window, in order, without the first steps."""
    spans = sorted(case.capture.spans, key=lambda span: span.start)
    steps = case.attribution.steps
    since = steps[0].host[0] if steps else 0
    return [
        Pass(span, model, training, with_grad, learns)
        for span, learns in forward_passes(spans)
        if span.start >= since
        for model, training, with_grad in [span.detail[:3]]
    ]


def facts_of(case: Case, model: int) -> dict[str, Any]:
    """Of the model with this number."""
    models: list[dict[str, Any]] = case.capture.model.get("models", [])
    return models[model] if model < len(models) else {}


def has_steady_shapes(facts: dict[str, Any]) -> bool:
    """Whether a model is called with the same shapes over and over: those of a batch, of a last
    one, and of an evaluation's.
    """
    shapes = facts.get("shapes")
    return shapes is None or 0 < len(shapes) <= _STEADY_SHAPES


def learning_ms(case: Case) -> float:
    """Forward and backward passes of a step."""
    return case.attribution.of("forward") + case.attribution.of("backward")


def evaluations(case: Case) -> list[tuple[int, int]]:
    """Stretches over other loaders than the loop's, wherever they are: their start and end."""
    loop = case.loading.loader.id if case.loading is not None else None
    open_at: dict[int, list[int]] = {}
    for span in sorted(case.capture.spans, key=lambda span: span.start):
        if span.kind not in (START, NEXT) or span.detail[0] == loop:
            continue
        known = open_at.setdefault(span.detail[1], [span.start, span.end])
        known[1] = max(known[1], span.end)
    return [(start, end) for start, end in open_at.values()]


def inside_ms(case: Case) -> float:
    """Evaluation within steps, of a step."""
    return case.attribution.of(EVALUATION)
