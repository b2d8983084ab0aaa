"""The simulation against closed forms, and against its twin in the page."""

import json
import random
import re
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from slipstream.doctor.best import best_setting
from slipstream.doctor.html import template
from slipstream.doctor.pipeline import (
    Pipeline,
    with_batch_size,
    with_copy_ahead,
    with_decode_speed,
    with_pinned,
)
from slipstream.doctor.simulate import Outcome, simulate, steps_to_run


def pipeline(**changes: Any) -> Pipeline:
    plain = Pipeline(
        workers=1, prefetch=2, batch_size=8, cores=64, fetch_ms=(30.0,), loop_ms=(10.0,)
    )
    return replace(plain, **changes)


def step_ms(**changes: Any) -> float:
    return simulate(pipeline(**changes)).step_ms


def gpu(**changes: Any) -> Pipeline:
    return pipeline(
        **{
            "workers": 4,
            "device": True,
            "loop_ms": (20.0,),
            "launch_ms": 4.0,
            "copy_ms": 5.0,
            **changes,
        }
    )


def test_without_workers_times_add_up() -> None:
    outcome = simulate(pipeline(workers=0, hand_over_ms=5.0))
    assert outcome.step_ms == pytest.approx(40)
    assert outcome.wait_ms == pytest.approx(30)
    assert outcome.limit == "workers"


@pytest.mark.parametrize(("fetch", "loop", "hand_over"), [(30, 10, 2), (10, 30, 2), (11, 10, 5)])
def test_one_worker_hides_the_shorter_of_both(fetch: float, loop: float, hand_over: float) -> None:
    measured = step_ms(fetch_ms=(fetch,), loop_ms=(loop,), hand_over_ms=hand_over)
    assert measured == pytest.approx(max(fetch, loop + hand_over))


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 48])
@pytest.mark.parametrize("prefetch", [1, 2, 8])
def test_workers_share_the_fetches(workers: int, prefetch: int) -> None:
    measured = step_ms(workers=workers, prefetch=prefetch, fetch_ms=(120.0,))
    # A queue of one batch leaves its worker idle from the batch's end until it is taken over.
    slack = 1.35 if prefetch == 1 else 1.0001
    assert max(120 / workers, 10) * 0.9999 <= measured <= max(120 / workers, 10) * slack


def test_busy_cores_are_shared() -> None:
    outcome = simulate(pipeline(workers=8, cores=2))
    assert outcome.step_ms == pytest.approx((30 + 10) / 2, rel=1e-3)
    assert outcome.limit == "cores"
    assert outcome.cores_busy == pytest.approx(1, abs=0.01)


def test_a_loop_on_many_cores_leaves_few_to_workers() -> None:
    assert step_ms(workers=8, cores=4, loop_cores=4.0) == pytest.approx((30 + 40) / 4, rel=0.02)


def test_who_waits_for_storage_takes_no_core() -> None:
    outcome = simulate(pipeline(workers=8, cores=2, fetch_cpu_share=0.0))
    assert outcome.step_ms == pytest.approx(10)
    assert outcome.limit == "loop"


def test_storage_gives_no_more_to_more_workers() -> None:
    for workers in (8, 16):
        outcome = simulate(pipeline(workers=workers, fetch_cpu_share=0.2, storage_ms=15.0))
        assert outcome.step_ms == pytest.approx(15, rel=0.06)
        assert outcome.limit == "storage"


def test_deep_prefetch_evens_slow_batches_out() -> None:
    uneven = (10.0,) * 9 + (100.0,)
    shallow, deep = (
        simulate(pipeline(workers=3, prefetch=prefetch, fetch_ms=uneven)) for prefetch in (1, 8)
    )
    assert shallow.step_ms > 1.2 * deep.step_ms
    assert shallow.limit == "prefetch"


def test_a_slow_batch_holds_others_up_only_in_order() -> None:
    heavy = (8.0,) * 19 + (300.0,)
    settings = {"workers": 4, "prefetch": 2, "fetch_ms": heavy}
    assert step_ms(**settings, in_order=False) < 0.9 * step_ms(**settings, in_order=True)


def test_a_device_lets_the_host_run_ahead() -> None:
    synchronous = simulate(gpu(copy_ms=0.0, run_ahead=0))
    ahead = simulate(gpu(copy_ms=0.0, run_ahead=2))
    assert synchronous.step_ms == pytest.approx(24)
    assert synchronous.idle_ms == pytest.approx(4)
    assert ahead.step_ms == pytest.approx(20)


def test_copies_cost_less_pinned_and_nothing_ahead() -> None:
    pageable = gpu()
    assert simulate(pageable).step_ms == pytest.approx(20 + 5 + 4)
    assert simulate(with_pinned(pageable, True)).step_ms == pytest.approx(20 + 2.5)
    assert simulate(with_copy_ahead(pageable, True)).step_ms == pytest.approx(20)
    assert with_pinned(with_pinned(pageable, True), False) == pageable


def test_copies_that_are_too_long_limit() -> None:
    outcome = simulate(gpu(copy_ahead=True, copy_ms=35.0))
    assert outcome.step_ms == pytest.approx(35)
    assert outcome.limit == "copy"


def test_a_larger_batch_takes_longer_per_sample_only_where_it_must() -> None:
    double = with_batch_size(pipeline(loop_fixed_ms=4.0, copy_ms=1.0), 16)
    assert double.fetch_ms == (60.0,)
    assert double.loop_ms == (16.0,)
    assert double.copy_ms == 2.0


def test_faster_decoding_takes_processor_time_away() -> None:
    faster = with_decode_speed(pipeline(fetch_cpu_share=0.8, decode_share=0.6), 3)
    assert faster.fetch_ms == pytest.approx((18.0,))
    assert faster.fetch_cpu_share * 18 == pytest.approx(30 * 0.4)
    assert with_decode_speed(pipeline(), 20) == pipeline()


def test_the_best_setting_has_no_more_workers_than_it_needs() -> None:
    assert best_setting(pipeline(fetch_ms=(39.0,), cores=16), 32) == (4, 1)
    uneven = (39.0,) * 9 + (150.0,)
    workers, prefetch = best_setting(pipeline(fetch_ms=uneven, cores=16), 32)
    assert 5 <= workers <= 8
    assert prefetch > 1


def test_lanes_cover_the_steps_and_do_not_overlap() -> None:
    outcome = simulate(gpu(fetch_ms=(90.0, 120.0), copy_ahead=True))
    assert outcome.lanes[0].name == "loop"
    assert {lane.kind for lane in outcome.lanes} == {"loop", "worker", "copy", "device"}
    for lane in outcome.lanes:
        assert lane.spans
        ends = [0.0, *(span[2] for span in lane.spans)]
        assert all(span[1] >= before - 1e-9 for span, before in zip(lane.spans, ends, strict=False))


def test_whole_rounds_of_the_workers_are_counted() -> None:
    assert steps_to_run(0, 2) == (5, 200)
    assert steps_to_run(7, 2) == (33, 203)
    assert steps_to_run(96, 4) == (773, 288)


def _any_pipeline(draw: random.Random) -> Pipeline:
    cpu_share = draw.choice([0.0, 1.0, draw.random()])
    return Pipeline(
        workers=draw.choice([0, 1, 2, 3, 5, 8, 13]),
        prefetch=draw.randint(1, 5),
        batch_size=draw.randint(1, 256),
        cores=draw.choice([1, 2, 4, 7.5, 16]),
        fetch_ms=tuple(draw.lognormvariate(3, 0.6) for _ in range(draw.randint(1, 40))),
        loop_ms=tuple(draw.lognormvariate(2, 0.3) for _ in range(draw.randint(1, 40))),
        fetch_cpu_share=cpu_share,
        decode_share=draw.random() * cpu_share,
        storage_ms=draw.choice([0.0, draw.random() * 20]),
        hand_over_ms=draw.choice([0.0, draw.random() * 3]),
        loop_cores=draw.choice([1.0, 2.5, 8.0]),
        loop_fixed_ms=draw.choice([0.0, 2.0]),
        copy_ms=draw.choice([0.0, draw.random() * 5]),
        copy_ahead=draw.random() < 0.4,
        pinned=draw.random() < 0.5,
        device=draw.random() < 0.5,
        launch_ms=draw.choice([0.0, draw.random() * 6]),
        run_ahead=draw.randint(0, 3),
        in_order=draw.random() < 0.7,
    )


_TWIN = """
const { readFileSync } = require("node:fs");
const [code, cases] = process.argv.slice(1).map((name) => readFileSync(name, "utf8"));
(0, eval)(code);
const { search, simulate, withBatchSize, withDecodeSpeed, withPinned } = globalThis.twin;
const best = (pipeline) => {
  const turns = search(pipeline, 3);
  for (;;) { const { done, value } = turns.next(); if (done) return value; }
};
console.log(JSON.stringify(JSON.parse(cases).map((pipeline) => ({
  plain: simulate(pipeline),
  changed: simulate(withPinned(withDecodeSpeed(withBatchSize(pipeline, 24), 3), !pipeline.pinned)),
  best: pipeline.workers === 3 ? best(pipeline) : null,
}))));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's simulation")
def test_the_page_simulates_the_same(tmp_path: Path) -> None:
    draw = random.Random(20)
    pipelines = [_any_pipeline(draw) for _ in range(40)]
    script = re.findall(r"<script>(.*?)</script>", template(), re.DOTALL)
    assert len(script) == 1
    (tmp_path / "page.js").write_text(script[0])
    (tmp_path / "cases.json").write_text(json.dumps([asdict(case) for case in pipelines]))
    command = ["node", "-e", _TWIN, str(tmp_path / "page.js"), str(tmp_path / "cases.json")]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    for case, twin in zip(pipelines, json.loads(answer.stdout), strict=True):
        _same(simulate(case), twin["plain"])
        faster = with_decode_speed(with_batch_size(case, 24), 3)
        _same(simulate(with_pinned(faster, not case.pinned)), twin["changed"])
        if case.workers == 3:
            assert best_setting(case, 3) == (twin["best"]["workers"], twin["best"]["prefetch"])


def _same(ours: Outcome, theirs: dict[str, Any]) -> None:
    values = json.loads(json.dumps(asdict(ours)))
    lanes, their_lanes = values.pop("lanes"), theirs.pop("lanes")
    assert values.pop("limit") == theirs.pop("limit")
    assert theirs == pytest.approx(values, abs=1e-6)
    assert [lane["name"] for lane in their_lanes] == [lane["name"] for lane in lanes]
    for lane, their in zip(lanes, their_lanes, strict=True):
        assert their["kind"] == lane["kind"]
        assert [(span[0], span[3]) for span in their["spans"]] == [
            (span[0], span[3]) for span in lane["spans"]
        ]
        times = [time for span in lane["spans"] for time in span[1:3]]
        assert [time for span in their["spans"] for time in span[1:3]] == pytest.approx(
            times, abs=1e-6
        )
