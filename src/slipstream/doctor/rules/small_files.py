"""`small-files`: every sample is a file of its own, and opening them is what takes time."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth, per_batch
from slipstream.doctor.rules.storage import files_of, reading_ms, samples_of

NAME = "small-files"
HEALTHY = "no time is lost by opening files"
_SMALL_BYTES = 512 << 10
_LEAST_SHARE = 0.3  # of a batch


def find(case: Case) -> list[Finding]:
    """A file or more for each sample, small ones, and reading takes a good part of a batch."""
    loading = feed(case)
    if loading is None or not loading.samples:
        return []
    opens = per_batch(loading, "opens")
    if opens < 0.8 * loading.samples or files_of(loading) < 0.5 * samples_of(loading):
        return []
    size = (loading.read_chars or 0.0) / opens
    spent = reading_ms(loading)
    if size > _SMALL_BYTES or spent < _LEAST_SHARE * loading.batch_ms:
        return []
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"A batch opens {opens:.0f} files of {size / 1024:.0f} KiB on average; reading"
                f" them takes a worker {spent:.1f} ms of {loading.batch_ms:.1f} ms."
            ),
            where=loading.loader.facts.get("read_at") or loading.loader.made_at,
            cost_ms=cost,
            fix="Pack the samples into one file (slipstream pack) and read that.",
            fix_class="E",
            gain=Gain(0.5 * cost, cost),
        )
    ]
