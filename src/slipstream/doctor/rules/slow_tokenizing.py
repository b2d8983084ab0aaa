"""`slow-tokenizing`: texts are cut into tokens again for every sample."""

import re

from slipstream.doctor.capture import Line
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth

NAME = "slow-tokenizing"
HEALTHY = "texts are tokenized in advance, or fast"
_NAMES = re.compile(r"token|bpe|word_?piece|sentence_?piece|encode_text|text_to_ids", re.IGNORECASE)
_LEAST_SHARE = 0.3  # of a batch


def find(case: Case) -> list[Finding]:
    """The loop waits, and functions that are called after tokens take much of a batch."""
    loading = feed(case)
    if loading is None:
        return []
    spent = sum(
        ms
        for stage, ms in loading.stages.items()
        if stage.startswith("tokenize:")
        or (stage.startswith("transform:") and _NAMES.search(stage))
    )
    places: list[tuple[str, int]] = []
    for stage in ("dataset", "collate"):
        inside = case.reader_lines(_lines_of(stage))
        named = case.reader_lines(_lines_of(stage, _NAMES))
        share = sum(n for _, n in named) / max(1, sum(n for _, n in inside))
        spent += share * loading.stages.get(stage, 0.0)
        places += named
    for stage in loading.stages:
        if stage.startswith(("tokenize:", "transform:")) and _NAMES.search(stage):
            places += case.reader_lines(_lines_of(stage))
    if spent < _LEAST_SHARE * loading.batch_ms:
        return []
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    places.sort(key=lambda place: -place[1])
    return [
        Finding(
            rule=NAME,
            title=(
                f"Cutting texts into tokens takes {spent:.1f} of the {loading.batch_ms:.1f} ms of a"
                " batch, every epoch again."
            ),
            where=places[0][0] if places else loading.loader.facts.get("read_at"),
            cost_ms=cost,
            fix="Tokenize once and keep the numbers (slipstream pack), or a batch at a time.",
            fix_class="E",
            gain=Gain(0.7 * cost, cost),
        )
    ]


def _lines_of(stage: str, names: "re.Pattern[str] | None" = None):  # type: ignore[no-untyped-def]
    def wanted(line: Line) -> bool:
        if line.stage != stage:
            return False
        return names is None or bool(names.search(line.function) or names.search(line.leaf))

    return wanted
