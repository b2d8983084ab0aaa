"""`eval-with-grad`: a model is evaluated, and torch keeps all that a backward pass would need."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import Pass, facts_of, passes
from slipstream.doctor.rules.replayed import Comparison, compare, replays

NAME = "eval-with-grad"
HEALTHY = "evaluation does not pay for gradients"


def find(case: Case) -> list[Finding]:
    """Passes in evaluation mode with gradients on, that no backward pass follows."""
    found = [_finding(case, model, wasted) for model, wasted in wasted_passes(case).items()]
    return [finding for finding in found if finding is not None]


def wasted_passes(case: Case) -> dict[int, list[Pass]]:
    """By model."""
    wasted: dict[int, list[Pass]] = {}
    for entry in passes(case):
        facts = facts_of(case, entry.model)
        if entry.with_grad and not entry.training and facts.get("trainable"):
            # A teacher's pass is followed by the student's backward pass.
            is_trained = bool(facts.get("with_gradient"))
            if not entry.learns or not is_trained:
                wasted.setdefault(entry.model, []).append(entry)
    return wasted


def _finding(case: Case, model: int, wasted: list[Pass]) -> Finding | None:
    seen_ms = sum(entry.ms for entry in wasted) / len(case.attribution.steps)
    gain = _comparison(case, model, seen_ms)
    if gain is None or not gain.is_sure or not case.matters(gain.cost_ms):
        return None
    facts = facts_of(case, model)
    return Finding(
        rule=NAME,
        title=(
            f"{facts.get('class', 'The model')} is evaluated with gradients on: {gain.cost_ms:.1f}"
            f" of {seen_ms:.1f} ms a step, and the memory of all activations."
        ),
        where=facts.get("modes", {}).get("eval", {}).get("where"),
        cost_ms=gain.cost_ms,
        fix="Evaluate under torch.inference_mode().",
        fix_class="E",
        gain=gain.gain,
    )


def _comparison(case: Case, model: int, seen_ms: float) -> Comparison | None:
    measured = [r for r in replays(case, "inference-mode") if r["model"] == model]
    return compare(measured[0], seen_ms) if measured else None
