"""`quota-ignored`: the container's quota of processor time is used up, and everything stands."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import is_worth

NAME = "quota-ignored"
HEALTHY = "the quota of processor time is not used up"


def find(case: Case) -> list[Finding]:
    """The control group was stopped while the loop ran."""
    stopped = case.capture.settings.get("stopped")
    if not stopped:
        return []
    # Linux adds up the time for which threads were stopped on each core: with those that ran.
    ran = (case.capture.settings.get("used") or {}).get("own", case.cores)
    if ran < case.cores / 2:  # others in the same group used it up
        ran = case.cores
    share = stopped / (ran + stopped)
    cost = share * case.step_ms
    if not is_worth(case, cost):
        return []
    loading = case.loading
    workers = 0 if loading is None else loading.loader.workers
    return [
        Finding(
            rule=NAME,
            title=(
                f"The quota of {case.cores} cores was used up for {share:.0%} of the time:"
                f" {workers} workers and {case.capture.settings.get('threads', 1)} threads of"
                " torch want more."
            ),
            where=None if loading is None else loading.loader.made_at,
            cost_ms=cost,
            fix=(
                f"Use what there is: num_workers at most {max(1, case.cores - 1)},"
                f" torch.set_num_threads({case.cores}); or a larger quota."
            ),
            fix_class="E",
            gain=Gain(0.0, cost),
        )
    ]
