"""Which forward passes a backward pass follows."""

from collections.abc import Sequence

from slipstream.doctor.capture import BACKWARD, FORWARD, NEXT, OPTIMIZER, Capture, Span


def forward_passes(spans: Sequence[Span]) -> list[tuple[Span, bool]]:
    """Those that are described, in order, and whether each is learned from: a backward pass comes
    before the next batch and the next step. A pass without gradients never is, nor one in
    evaluation mode if the model is called in training mode between it and the backward pass.
    """
    found = []
    learns = False
    trained: set[int] = set()
    # From the end: what follows is known then.
    for span in reversed(spans):
        if span.kind in (NEXT, OPTIMIZER, BACKWARD):
            learns = span.kind == BACKWARD
            trained.clear()
        elif span.kind == FORWARD and span.detail:
            model, training, with_grad = span.detail[:3]
            found.append((span, learns and with_grad and (training or model not in trained)))
            if training:
                trained.add(model)
    return found[::-1]


def is_learned_from(capture: Capture, model: int) -> bool:
    """Whether parameters of the model with this number got gradients."""
    models = capture.model.get("models", [])
    return model < len(models) and bool(models[model].get("with_gradient"))


def evaluation_passes(capture: Capture, spans: Sequence[Span]) -> list[Span]:
    """Forward passes in evaluation mode, without gradients, of models that learn: validation by
    hand, without a loader of its own.
    """
    return [
        span
        for span, learns in forward_passes(spans)
        if not learns
        and not span.detail[1]
        and not span.detail[2]
        and is_learned_from(capture, span.detail[0])
    ]
