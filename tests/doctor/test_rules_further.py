"""Edges of the rules about waste and about what a machine is shared with, on recordings by hand."""

from pathlib import Path
from typing import Any

import pytest

from slipstream.doctor.attribute import attribute
from slipstream.doctor.capture import CALL, Call
from slipstream.doctor.finding import Finding
from slipstream.doctor.rules import all_rules, swapping
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.precedence import arrange
from tests.doctor.made_case import made_case, made_loader
from tests.doctor.test_rules_loop import _STEPS, PASSES, case_of, findings, only, replay

PAGES = Path(__file__).parents[2] / "docs/rules"
SEARCH = "DistributedDataParallel: unused parameters"


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_every_rule_has_a_page(rule: Any) -> None:
    page = (PAGES / f"{rule.name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# `{rule.name}`\n")
    assert "**What to do**" in page


def profiled(on: int, now: float = 18, then: float = 9) -> dict[str, Any]:
    return replay("profiler", now, then, profiler="cProfile", steps=[on, _STEPS])


def test_a_profiler_counts_where_it_is_on_in_most_steps() -> None:
    call = Call(0, "cProfile", "train.py:8", 1)
    found = only(case_of(*PASSES, calls=[call], replays=[profiled(_STEPS)]))
    assert (found.rule, found.where) == ("profiler-left-on", "train.py:8")
    assert found.cost_ms == pytest.approx(4.5, rel=0.05)
    assert findings(case_of(*PASSES, calls=[call], replays=[profiled(5)])) == {}
    assert findings(case_of(*PASSES, replays=[profiled(_STEPS, 9, 9)])) == {}


def test_a_bias_that_a_norm_takes_away_is_named_from_a_twentieth_of_a_step() -> None:
    entry = replay("without-bias", 10, 9, layers=3, first="0")
    found = only(case_of(*PASSES, replays=[entry]))
    assert (found.rule, found.where) == ("conv-bias-before-norm", "train.py:12")
    assert found.cost_ms == pytest.approx(0.9, rel=0.05)
    little = replay("without-bias", 10, 9.6, layers=3, first="0")
    assert findings(case_of(*PASSES, replays=[little])) == {}


def test_attention_by_hand_costs_what_it_takes_beyond_torchs_and_no_more_than_the_passes() -> None:
    entry = replay("attention", 3, 1, shape=[8, 512, 512, 64], count=2)
    found = only(case_of(*PASSES, replays=[entry]))
    assert (found.rule, found.where) == ("unfused-attention", "train.py:12")
    assert found.cost_ms == pytest.approx(2, rel=0.05)
    huge = replay("attention", 300, 1, shape=[8, 512, 512, 64], count=2)
    assert only(case_of(*PASSES, replays=[huge])).cost_ms == pytest.approx(9, rel=0.01)
    faster = replay("attention", 1, 1.2, shape=[8, 512, 512, 64], count=2)
    assert findings(case_of(*PASSES, replays=[faster])) == {}


def test_odd_sizes_matter_on_a_device_alone() -> None:
    about = {"shape": [1, 64, 768, 50257], "padded": [1, 64, 768, 50304], "dtype": "bfloat16"}
    entry = replay("odd-product", 4, 2, **about)
    found = only(case_of(*PASSES, clock="device", replays=[entry]))
    assert found.rule == "odd-dimensions"
    assert "50304" in found.fix
    assert findings(case_of(*PASSES, replays=[entry])) == {}


@pytest.mark.parametrize(
    ("facts", "is_found"),
    [
        ({"retained": _STEPS, "retained_looked_at": 4, "retained_used": 0}, True),
        ({"retained": _STEPS, "retained_looked_at": 4, "retained_used": 1}, False),
        ({"retained": _STEPS, "retained_looked_at": 1, "retained_used": 0}, False),
        ({"retained": 4, "retained_looked_at": 4, "retained_used": 0}, False),
        ({}, False),
    ],
)
def test_a_graph_is_kept_for_nothing_if_no_pass_uses_it(
    facts: dict[str, int], is_found: bool
) -> None:
    call = Call(0, "backward", "train.py:32", _STEPS, facts=facts)
    found = findings(case_of(*PASSES, calls=[call]))
    assert (list(found) == ["retained-graph"]) is is_found


def test_a_search_that_finds_something_is_needed() -> None:
    call = Call(0, SEARCH, "train.py:30", _STEPS, facts={"unused_bytes": 0})
    found = only(case_of(*PASSES, (CALL, 0.4, 0), calls=[call]))
    assert found.rule == "unused-parameter-search"
    assert found.cost_ms == pytest.approx(0.4, rel=0.01)
    call.facts["unused_bytes"] = 4096
    assert findings(case_of(*PASSES, (CALL, 0.4, 0), calls=[call])) == {}


def ranks(*loading_ms: float, waits: bool = True) -> dict[str, Any]:
    """Those that read for less time wait longer in the backward pass."""
    slowest = max(loading_ms)
    found = []
    for number, loading in enumerate(loading_ms):
        backward = 6.0 + (slowest - loading if waits else 0.0)
        parts = {"loading": loading, "forward": 3.0, "backward": backward, "unattributed": 1.0}
        found.append(
            {
                "rank": number, "steps": 40, "step_ms": sum(parts.values()), "parts": parts,
                "before_exchange_ms": [loading + 4.0] * 40,
            }
        )  # fmt: skip
    return {"name": "ranks", "ranks": found}


def test_the_rank_that_comes_late_is_named_with_what_it_does_longer() -> None:
    found = only(case_of(*PASSES, replays=[ranks(1, 1, 5, 1)]))
    assert found.rule == "slow-rank"
    assert found.cost_ms == pytest.approx(4)
    assert "Rank 2" in found.title
    assert "loading takes it 4.0 ms more" in found.title


def test_ranks_alike_and_ranks_that_do_not_wait_are_no_finding() -> None:
    assert findings(case_of(*PASSES, replays=[ranks(1, 1.2, 0.9)])) == {}
    assert findings(case_of(*PASSES, replays=[ranks(1, 1, 5, waits=False)])) == {}
    assert findings(case_of(*PASSES, replays=[ranks(5)])) == {}


def test_ranks_that_take_turns_at_being_late_are_no_finding() -> None:
    """As they do where other programs take their cores for a while."""
    replay = ranks(1, 5)
    replay["ranks"][0]["before_exchange_ms"] = [5.0] * 20 + [9.0] * 10 + [1.0] * 10
    replay["ranks"][1]["before_exchange_ms"] = [9.0] * 20 + [1.0] * 10 + [17.0] * 10
    assert findings(case_of(*PASSES, replays=[replay])) == {}


@pytest.mark.parametrize(
    ("pages", "own", "stalled", "cost"),
    [(4000, 2**26, 80_000_000, 2.0), (4000, 2**26, None, 0.0), (4000, 0, 80_000_000, None),
     (40, 2**26, 80_000_000, None), (4000, 2**26, 80_000, None)],
)  # fmt: skip
def test_swapping_is_bounded_by_what_waited_for_memory(
    pages: int, own: int, stalled: int | None, cost: float | None
) -> None:
    seen = {"name": "swap", "pages": pages, "own_bytes": own, "stalled": stalled}
    found = findings(case_of(*PASSES, replays=[seen]))
    if cost is None:
        assert found == {}
    else:
        assert found["swapping"].cost_ms == pytest.approx(cost, rel=0.15)


def test_a_device_with_others_on_it_is_named() -> None:
    shared = {"name": "device", "processes": 3, "slowed": 0}
    assert "2 other processes" in only(case_of(*PASSES, clock="device", replays=[shared])).title
    alone = {"name": "device", "processes": 1, "slowed": 200_000_000}
    assert findings(case_of(*PASSES, clock="device", replays=[alone])) == {}


def test_swapped_data_is_waited_for_while_it_is_read() -> None:
    page = 4096
    case = made_case(
        wait_ms=20, stages={"dataset": (20, 2)}, loader=made_loader(workers=0, prefetch=None),
        read_bytes=40 * 1000 * page, read_chars=0,
    )  # fmt: skip
    seen = {"name": "swap", "pages": 40 * 1000, "own_bytes": 1 << 28, "stalled": 0}
    case.capture.replays = [{**seen, "page_bytes": page}]
    [found] = swapping.find(case)
    assert found.cost_ms == pytest.approx(18, rel=0.1)
    waits = Finding("no-workers", "", None, 20.0, "", "E")
    first, second = arrange([waits, found])
    assert (first.rule, second.cost_ms) == ("swapping", pytest.approx(2, abs=1))
    for process in case.capture.processes:
        process.read_chars = process.read_bytes  # files were read
    case = Case(case.capture, attribute(case.capture))
    assert swapping.find(case) == []
