"""Which forward passes a backward pass follows."""

from collections.abc import Sequence

from slipstream.doctor.capture import BACKWARD, FORWARD, NEXT, OPTIMIZER, Capture, Span

_OFTEN = 0.5  # of the backward passes


def forward_passes(spans: Sequence[Span]) -> list[tuple[Span, bool]]:
    """Those that are described, in order, and whether each is learned from: it has gradients, and a
    backward pass comes before the next batch and the next step, when its graph is still there.
    """
    return [
        (span, backward is not None and bool(span.detail[2]) and not any(span.detail[3:]))
        for span, backward in _with_backward(spans)
    ]


def _with_backward(spans: Sequence[Span]) -> list[tuple[Span, int | None]]:
    """Forward passes, and the number of the backward pass that follows before anything else."""
    found = []
    backward: int | None = None
    # From the end: what follows is known then.
    for number in range(len(spans) - 1, -1, -1):
        span = spans[number]
        if span.kind in (NEXT, OPTIMIZER):
            backward = None
        elif span.kind == BACKWARD:
            backward = number
        elif span.kind == FORWARD and span.detail:
            found.append((span, backward))
    return found[::-1]


def is_learned_from(capture: Capture, model: int) -> bool:
    """Whether parameters of the model with this number got gradients."""
    models = capture.model.get("models", [])
    return model < len(models) and bool(models[model].get("with_gradient"))


def evaluation_passes(capture: Capture, spans: Sequence[Span]) -> list[Span]:
    """Forward passes in evaluation mode, without gradients, of models that learn: validation by
    hand, without a loader of its own. Where such passes come before most backward passes, what they
    give is learned from, as labels are that a model makes for itself.
    """
    found = [
        (span, backward)
        for span, backward in _with_backward(spans)
        if not span.detail[1] and not span.detail[2] and is_learned_from(capture, span.detail[0])
    ]
    backwards = sum(span.kind == BACKWARD for span in spans)
    is_learning = len({number for _, number in found} - {None}) > _OFTEN * backwards
    return [span for span, number in found if number is None or not is_learning]
