"""`unfolded-batchnorm`: in inference a batch norm can be a part of the convolution before it."""

from slipstream.doctor.finding import Finding
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.passes import facts_of
from slipstream.doctor.rules.replayed import compared

NAME = "unfolded-batchnorm"
HEALTHY = "inference has no batch norm to fold, or gains nothing"
_SHARE = 0.25


def find(case: Case) -> list[Finding]:
    """Measured with all of them folded; of models that are never trained in this run."""
    gain = compared(case, "folded", case.attribution.of("forward"))
    if gain is None or not gain.is_sure or gain.cost_ms < _SHARE * case.step_ms:
        return []
    facts = facts_of(case, gain.replay["model"])
    return [
        Finding(
            rule=NAME,
            title=(
                f"{gain.replay['folds']} batch norms of {facts.get('class', 'the model')} follow a"
                f" convolution: {gain.cost_ms:.1f} ms of a batch."
            ),
            where=next((mode["where"] for mode in facts.get("modes", {}).values()), None),
            cost_ms=gain.cost_ms,
            fix="Fold them: slipstream.optimize_model, or torch.nn.utils.fuse_conv_bn_eval.",
            fix_class="N",
            gain=gain.gain,
        )
    ]
