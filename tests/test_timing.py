"""Calls are timed in turns, and ratios have honest bounds."""

import gc
import itertools
import random
import time

from slipstream.timing import ratio_of, time_in_turns


def test_each_round_has_all_in_another_order() -> None:
    made: list[str] = []
    calls = {name: lambda name=name: (made.append(name), time.sleep(0.006)) for name in "abc"}
    taken = time_in_turns(calls, seconds=0.2)
    rounds = {len(seconds) for seconds in taken.values()}
    assert len(rounds) == 1 and min(rounds) >= 6
    behind = made[6:]  # two calls of each before, to see how long they take
    turns = [tuple(behind[at : at + 3]) for at in range(0, len(behind), 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len(set(turns)) > 1
    assert all(0.006 <= second < 0.05 for second in taken["a"])


def test_short_calls_are_repeated_until_a_clock_can_tell() -> None:
    count = 0

    def call() -> None:
        nonlocal count
        count += 1

    taken = time_in_turns({"a": call}, seconds=0.05)
    assert count > 1000 * len(taken["a"]) / 10
    assert max(taken["a"]) < 1e-4


def test_settled_calls_rest_and_warm_up_before_each_turn() -> None:
    made: list[tuple[str, float]] = []

    def call(name: str) -> None:
        made.append((name, time.perf_counter()))
        time.sleep(0.006)

    calls = {name: lambda name=name: call(name) for name in "ab"}
    taken = time_in_turns(calls, seconds=0, is_settled=True)
    assert len(taken["a"]) == 6
    turns = [list(each) for _, each in itertools.groupby(made, key=lambda one: one[0])][2:]
    assert min(map(len, turns)) >= 2  # some that do not count, and one that does
    pauses = [after[0][1] - before[-1][1] for before, after in itertools.pairwise(turns)]
    assert pauses and min(pauses) >= 0.02


def test_long_calls_are_not_made_for_nothing() -> None:
    count = 0

    def call() -> None:
        nonlocal count
        count += 1
        time.sleep(0.11)

    time_in_turns({"a": call}, seconds=0, is_settled=True)
    assert count == 2 + 6


def test_the_device_is_waited_for_before_and_behind() -> None:
    waits: list[str] = []
    time_in_turns({"a": lambda: waits.append("call")}, seconds=0, wait=lambda: waits.append("wait"))
    assert waits[0] == waits[-1] == "wait"


def test_the_collector_and_random_numbers_are_as_before() -> None:
    random.seed(3)
    expected = random.Random(3).random()
    assert gc.isenabled()
    seen = []
    time_in_turns({"a": lambda: seen.append(gc.isenabled())}, seconds=0.01)
    assert gc.isenabled() and not seen[-1]
    assert random.random() == expected


def test_ratios() -> None:
    own = random.Random(1)
    before = [1.0 + own.gauss(0, 0.05) for _ in range(100)]
    # A machine that gets slower half way slows both.
    drift = [1.0] * 50 + [3.0] * 50
    after = [value * 0.5 for value in before]
    found = ratio_of(
        [b * d for b, d in zip(before, drift, strict=True)],
        [a * d for a, d in zip(after, drift, strict=True)],
    )
    assert found.low <= found.value <= found.high
    assert abs(found.value - 2) < 0.01
    same = ratio_of(before, [1.0 + own.gauss(0, 0.05) for _ in range(100)])
    assert same.low < 1 < same.high
