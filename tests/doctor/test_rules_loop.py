"""Edges of the rules about the loop and about devices, on recordings made by hand."""

from typing import Any

import pytest

from slipstream.doctor.attribute import attribute
from slipstream.doctor.capture import (
    BACKWARD,
    CALL,
    COPY,
    FORWARD,
    GARBAGE,
    NEXT,
    OPTIMIZER,
    SAVE,
    SYNC,
    ZERO_GRAD,
    Call,
    Capture,
    Line,
    Process,
    Span,
)
from slipstream.doctor.finding import Finding
from slipstream.doctor.rules import all_rules
from slipstream.doctor.rules.case import Case
from tests.doctor.made_case import MS, made_loader

_STEPS = 40
# Kind, milliseconds, and what is in `detail`.
_Part = tuple[str, float, Any]
PASSES: tuple[_Part, ...] = (
    (ZERO_GRAD, 0.1, None), (FORWARD, 3, [0, True, True]), (BACKWARD, 6, 0), (OPTIMIZER, 0.9, 7),
)  # fmt: skip


def case_of(*parts: _Part, clock: str = "host", **changes: Any) -> Case:
    """A run whose steps have these parts, one after the other; the kind "" is the script's own
    code. On a device its clock shows the same times.
    """
    spans: list[Span] = []
    now = 0
    own: list[tuple[int, int]] = []
    for number in range(_STEPS):
        for kind, ms, detail in ((NEXT, 0.05, [0, 0, number]), *parts):
            end = now + int(ms * MS)
            if kind:
                device = (now, end) if clock == "device" else None
                spans.append(Span(kind, now, end, detail, device=device))
            else:
                own.append((now, end))
            now = end
    loader = changes.pop("loader", made_loader(workers=2))
    line = changes.pop("line", None)
    capture = Capture(
        script="train.py", machine={"usable_cores": 8}, began_at="", length=now, spans=spans,
        loaders=[loader], clock=clock, model={"models": [made_model()]},
    )  # fmt: skip
    if line is not None:
        capture.lines = [line]
        capture.samples = [[(start + end) // 2, 0] for start, end in own]
    for name, value in changes.items():
        setattr(capture, name, value)
    return Case(capture, attribute(capture))


def made_model(**changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "class": "Net", "trainable": 4, "with_gradient": 4, "convolutions": 2,
        "modes": {"train": {"calls": _STEPS, "where": "train.py:30", "anomaly": 0}},
    }  # fmt: skip
    return {**facts, **changes}


def replay(name: str, now: float, then: float, **facts: Any) -> dict[str, Any]:
    """A comparison with little noise."""
    wave = [1.0, 1.01, 0.99, 1.005, 0.995]
    return {
        "name": name, "model": 0, "where": "train.py:12",
        "now_ms": [now * k for k in wave], "then_ms": [then * k for k in wave], **facts,
    }  # fmt: skip


def findings(case: Case) -> dict[str, Finding]:
    return {finding.rule: finding for rule in all_rules() for finding in rule.find(case)}


def only(case: Case) -> Finding:
    found = findings(case)
    assert len(found) == 1, list(found)
    return next(iter(found.values()))


def test_a_plain_loop_is_healthy() -> None:
    assert findings(case_of(*PASSES)) == {}
    assert findings(case_of(*PASSES, clock="device")) == {}


def test_saving_in_every_step_is_named_with_its_line() -> None:
    call = Call(0, "torch.save", "train.py:40", _STEPS)
    found = only(case_of(*PASSES, (SAVE, 5, 0), calls=[call]))
    assert (found.rule, found.where) == ("frequent-checkpoint", "train.py:40")
    assert found.cost_ms == pytest.approx(5, rel=0.01)


@pytest.mark.parametrize(("at", "is_near"), [(42, True), (90, False)])
def test_a_checkpoint_that_is_renamed_is_one_cause(at: int, is_near: bool) -> None:
    call = Call(0, "torch.save", "train.py:40", _STEPS)
    line = Line(f"train.py:{at}", "save", "", "", _STEPS, outer="train.py:60")
    known = {line.where: {"does": ["moves"]}}
    parts: list[_Part] = [*PASSES, (SAVE, 5, 0), ("", 8, None)]
    found = findings(case_of(*parts, calls=[call], line=line, statements=known))
    assert found["frequent-checkpoint"].where == "train.py:40"
    assert found["frequent-checkpoint"].cost_ms == pytest.approx(13 if is_near else 5, rel=0.05)
    assert ("python-in-loop" in found) is not is_near


@pytest.mark.parametrize("every", [1, 2, 5])
def test_steps_between_saves_are_counted_through_the_ends_of_epochs(every: int) -> None:
    # Epochs of ten batches. The last of each ends no step, and what the step saves is seen anyway.
    spans: list[Span] = []
    now = 0
    for number in range(43):
        epoch, batch = divmod(number, 10)
        parts: list[_Part] = [(NEXT, 0.05, [0, epoch, batch]), *PASSES]
        parts += [(SAVE, 30, 0)] if (batch + 1) % every == 0 else []
        parts += [(NEXT, 0.05, [0, epoch, -1])] if batch == 9 else []
        for kind, ms, detail in parts:
            spans.append(Span(kind, now, now + int(ms * MS), detail))
            now = spans[-1].end
    call = Call(0, "torch.save", "train.py:40", 43 // every)
    title = findings(case_of(spans=spans, calls=[call]))["frequent-checkpoint"].title
    wanted = "in every step" if every == 1 else f"every {every} steps"
    assert f"The model's state is kept {wanted}, and the loop waits" in title


def test_held_graphs_are_told_with_what_memory_grows_by() -> None:
    def title(*resident: int) -> str:
        facts = {"graphs": 39, "graphs_alive": 39, "kept_at": "train.py:38"}
        memory = [[100 * (k + 1) * MS, mb * 1_000_000, 0] for k, mb in enumerate(resident)]
        call = Call(0, "backward", "train.py:37", _STEPS, facts=facts)
        return findings(case_of(*PASSES, calls=[call], memory=memory))["graph-held"].title

    held = "The graphs of 39 of 39 backward passes are still held: memory grows"
    assert title(500, 520, 540, 560) == f"{held} by 2.0 MB with every step."
    assert title(500, 520, 480, 540) == title(500, 520) == title() == f"{held} with every step."


def test_a_log_that_takes_its_time_is_named() -> None:
    call = Call(0, "Logger.handle", "train.py:41", _STEPS)
    found = only(case_of(*PASSES, (CALL, 4, 0), calls=[call]))
    assert (found.rule, found.where) == ("logging-in-loop", "train.py:41")
    assert found.cost_ms == pytest.approx(4, rel=0.01)
    assert "every n steps" in found.fix
    bar = Call(0, "tqdm.refresh", "train.py:41", _STEPS)
    assert "mininterval=1" in only(case_of(*PASSES, (CALL, 4, 0), calls=[bar])).fix


def test_a_quick_print_is_no_finding() -> None:
    call = Call(0, "print", "train.py:41", _STEPS)
    assert findings(case_of(*PASSES, (CALL, 0.1, 0), calls=[call])) == {}


def test_pauses_of_the_collector_count_and_those_asked_for_have_their_own_name() -> None:
    assert only(case_of(*PASSES, (GARBAGE, 8, 2))).rule == "garbage-collection"
    call = Call(0, "gc.collect", "train.py:50", _STEPS)
    found = only(case_of(*PASSES, (CALL, 8, 0), calls=[call]))
    assert found.rule == "forced-garbage-collection"


@pytest.mark.parametrize("does", [["arrays"], ["sleeps"], ["python"], ["other"]])
def test_own_work_before_the_forward_pass_is_named(does: list[str]) -> None:
    line = Line("train.py:20", "main", "", "", _STEPS)
    case = case_of(("", 5, None), *PASSES, line=line, statements={"train.py:20": {"does": does}})
    found = only(case)
    assert (found.rule, found.where) == ("python-in-loop", "train.py:20")
    assert found.cost_ms == pytest.approx(5, rel=0.02)


def test_a_sample_that_hits_a_neighbour_makes_no_way_in() -> None:
    lines = [Line("train.py:20", "main", "", "", _STEPS)]
    case = case_of(
        ("", 5, None), *PASSES, line=lines[0], statements={"train.py:20": {"does": ["other"]}}
    )
    case.capture.lines.append(Line("train.py:20", "main", "", ZERO_GRAD, 1))
    assert "python-in-loop" in findings(case)
    case.capture.lines.append(Line("train.py:20", "main", "", ZERO_GRAD, _STEPS // 2))
    assert "python-in-loop" not in findings(case)


@pytest.mark.parametrize(("does", "is_found"), [(["other"], False), (["arrays"], True)])
def test_between_forward_and_backward_only_what_cannot_be_the_model(
    does: list[str], is_found: bool
) -> None:
    line = Line("train.py:20", "main", "", "", _STEPS)
    forward, backward = PASSES[:2], PASSES[2:]
    case = case_of(
        *forward, ("", 5, None), *backward, line=line, statements={"train.py:20": {"does": does}}
    )
    assert ("python-in-loop" in findings(case)) is is_found


def test_work_in_a_function_is_named_by_the_line_of_the_loop() -> None:
    line = Line("helpers.py:3", "augment", "", "", _STEPS, outer="train.py:21")
    case = case_of(
        ("", 5, None), *PASSES, line=line, statements={"helpers.py:3": {"does": ["python"]}}
    )
    found = only(case)
    assert found.where == "train.py:21"
    assert "helpers.py:3" in found.places


def test_a_loop_over_parameters_has_its_own_name() -> None:
    line = Line("train.py:25", "main", "", "", _STEPS)
    known = {"train.py:25": {"does": ["other"], "over_parameters": "train.py:24"}}
    found = only(case_of(*PASSES, ("", 3, None), line=line, statements=known))
    assert (found.rule, found.where) == ("parameter-loop", "train.py:24")


def test_filling_with_zeros_is_charged_with_the_adding() -> None:
    call = Call(0, "zero_grad(set_to_none=False)", "train.py:29", _STEPS)
    parts = [(ZERO_GRAD, 1.0, 0), *PASSES[1:]]
    case = case_of(*parts, calls=[call], replays=[replay("add-to-zeros", 10, 9)])
    found = only(case)
    assert found.rule == "zero-grad-memset"
    assert found.cost_ms == pytest.approx(1.0 + 0.6, rel=0.05)


def test_an_optimizer_by_default_needs_more_to_be_named_than_one_that_was_asked() -> None:
    slow = (*PASSES[:3], (OPTIMIZER, 0.8, 7))
    facts = [{"id": 7, "class": "Adam", "parameters": 100}]
    for asked, names in ((True, {"for-loop-optimizer"}), (False, set())):
        entry = replay("optimizer-fused", 1.0, 0.3, optimizer=7, was_asked=asked)
        assert set(findings(case_of(*slow, optimizers=facts, replays=[entry]))) == names
    entry = replay("optimizer-fused", 1.0, 0.2, optimizer=7, was_asked=False)
    slow = (*PASSES[:3], (OPTIMIZER, 8, 7))
    found = only(case_of(*slow, optimizers=facts, replays=[entry]))
    assert found.cost_ms == pytest.approx(6.4, rel=0.05)
    assert "fused=True" in found.fix


@pytest.mark.parametrize(
    ("name", "rule"),
    [("anomaly", "anomaly-detection"), ("deterministic", "deterministic-mode"),
     ("float32", "float64-model"), ("frozen", "frozen-gradients")],
)  # fmt: skip
def test_what_a_replay_saves_is_scaled_to_the_loop(name: str, rule: str) -> None:
    found = only(case_of(*PASSES, replays=[replay(name, 18, 9)]))
    assert found.rule == rule
    assert found.cost_ms == pytest.approx(4.5, rel=0.05)
    assert found.gain is not None
    assert found.gain.how == "measured"


@pytest.mark.parametrize("name", ["anomaly", "float32", "frozen", "channels-last", "folded"])
def test_no_measurable_gain_is_no_finding(name: str) -> None:
    entry = replay(name, 10, 10, folds=2)
    entry["then_ms"] = [9.8, 10.2, 9.9, 10.1, 10.0]
    assert findings(case_of(*PASSES, replays=[entry])) == {}


def test_gradients_that_are_clipped_together_make_freezing_another_computation() -> None:
    call = Call(0, "clip_grad_norm_", "train.py:33", _STEPS)
    found = only(case_of(*PASSES, calls=[call], replays=[replay("frozen", 18, 9)]))
    assert found.fix_class == "S"


def test_threads_matter_only_where_cores_are_free() -> None:
    entry = replay("threads", 10, 5, threads=[1, 8])
    assert only(case_of(*PASSES, replays=[entry])).rule == "thread-count"
    entry = replay("threads", 10, 9.6, threads=[1, 8])
    assert findings(case_of(*PASSES, replays=[entry])) == {}


def test_evaluation_with_gradients_is_measured_and_a_trained_eval_mode_is_not_meant() -> None:
    model = made_model()
    model["modes"]["eval"] = {"calls": 9, "where": "train.py:60"}
    models = {"models": [model]}
    entry = replay("inference-mode", 4, 3)
    evaluated = (*PASSES, (FORWARD, 4, [0, False, True]))
    found = only(case_of(*evaluated, model=models, replays=[entry]))
    assert (found.rule, found.where) == ("eval-with-grad", "train.py:60")
    assert found.cost_ms == pytest.approx(1.0, rel=0.05)
    trained = ((FORWARD, 3, [0, False, True]), *PASSES[2:])
    assert findings(case_of(*trained, model=models, replays=[entry])) == {}
    for is_gone in (False, True):  # in a loop without a loader a backward pass always follows
        before = ((FORWARD, 4, [0, False, True, is_gone]), *PASSES[1:])
        found = findings(case_of(*before, model=models, replays=[entry]))
        assert set(found) == ({"eval-with-grad"} if is_gone else set())


def test_validation_inside_of_steps_is_named_when_it_is_a_quarter() -> None:
    quiet = (*PASSES, (FORWARD, 1, [0, False, False]))
    assert findings(case_of(*quiet)) == {}
    loud = (*PASSES, (FORWARD, 6, [0, False, False]))
    assert only(case_of(*loud)).rule == "frequent-evaluation"


def test_graphs_that_live_are_named_and_a_last_one_is_not() -> None:
    call = Call(0, "backward", "train.py:32", _STEPS)
    call.facts = {"graphs": 30, "graphs_alive": 30, "kept_at": "train.py:34"}
    assert only(case_of(*PASSES, calls=[call])).where == "train.py:34"
    call.facts = {"graphs": 30, "graphs_alive": 1}
    assert findings(case_of(*PASSES, calls=[call])) == {}


def test_layers_that_are_slower_for_their_input_are_named_by_its_order() -> None:
    for layout, rule in (("other", "non-contiguous-input"), ("contiguous", "mixed-memory-format")):
        entry = replay(
            "layer-layout", 3, 1, layer="conv1", layout=layout, weights="channels_last",
            kind="Conv2d",
        )  # fmt: skip
        found = only(case_of(*PASSES, replays=[entry]))
        assert found.rule == rule
        assert found.cost_ms == pytest.approx(2.0, rel=0.05)


def test_a_layer_that_nobody_uses_is_named() -> None:
    found = only(case_of(*PASSES, replays=[replay("unused-layer", 2, 1e-6, layer="aux")]))
    assert found.rule == "unused-parameters"
    assert found.cost_ms == pytest.approx(2, rel=0.05)


def test_compilations_inside_of_steps_count() -> None:
    late = [{"start": 200 * MS, "ms": 80.0, "where": "train.py:10"}]
    found = only(case_of(*PASSES, settings={"compilations": late}))
    assert found.rule == "repeated-compilation"
    early = [{"start": 1, "ms": 80.0, "where": "train.py:10"}]
    assert findings(case_of(*PASSES, settings={"compilations": early})) == {}


def test_a_batch_of_one_is_named_only_on_a_processor_and_only_if_measured() -> None:
    entry = replay("double-batch", 5, 5.1, batch=1)
    assert only(case_of(*PASSES, replays=[entry])).rule == "small-batch"
    entry = replay("double-batch", 5, 9.6, batch=1)
    assert findings(case_of(*PASSES, replays=[entry])) == {}


# On a device


def copied(facts: dict[str, int], **changes: Any) -> Case:
    call = Call(0, "Tensor.to", "train.py:22", _STEPS, facts=facts)
    return case_of((COPY, 2, 0), *PASSES, clock="device", calls=[call], **changes)


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        ({"pageable": _STEPS, "blocking": _STEPS}, "pageable-copy"),
        ({"pageable": 0, "blocking": _STEPS}, "blocking-copy"),
        ({"pageable": 0, "blocking": 0}, "copy-on-critical-path"),
    ],
)
def test_each_copy_has_one_cause(facts: dict[str, int], rule: str) -> None:
    found = only(copied(facts))
    assert (found.rule, found.where) == (rule, "train.py:22")
    assert found.cost_ms == pytest.approx(2, rel=0.06)


def test_what_a_line_makes_it_could_make_on_the_device() -> None:
    made = {"train.py:22": {"does": ["torch"], "builds": True}}
    found = only(copied({"pageable": _STEPS, "blocking": _STEPS}, statements=made))
    assert found.rule == "cpu-built-tensor"


def waited(what: str, *, loading_ms: float, device_ms: float, own_ms: float) -> Case:
    """A step: a batch is awaited, the device gets work in no time, the loop waits until it is done,
    and has something to do itself.
    """
    spans: list[Span] = []
    now = 0
    for number in range(_STEPS):
        given = now + int(loading_ms * MS)
        asked = given + MS // 10
        done = given + int(device_ms * MS)
        spans += [
            Span(NEXT, now, given, [0, 0, number], device=(now, given)),
            Span(FORWARD, given, asked, device=(given, done)),
            Span(SYNC, asked, max(asked, done), 0, device=(done, done)),
        ]
        now = max(asked, done) + int(own_ms * MS)
    capture = Capture(
        script="train.py", machine={"usable_cores": 8}, began_at="", length=now, spans=spans,
        loaders=[made_loader(workers=2)], clock="device", model={"models": [made_model()]},
        calls=[Call(0, what, "train.py:35", _STEPS)],
    )  # fmt: skip
    return Case(capture, attribute(capture))


@pytest.mark.parametrize(
    ("what", "rule"), [("Tensor.item", "sync-each-step"), ("Tensor[mask]", "hidden-sync")]
)
def test_a_wait_costs_what_the_device_idles_after_it(what: str, rule: str) -> None:
    found = findings(waited(what, loading_ms=0.05, device_ms=8, own_ms=3))[rule]
    assert found.where == "train.py:35"
    assert found.cost_ms == pytest.approx(3, abs=0.1)


def test_a_wait_costs_no_more_than_the_loop_stands_in_it() -> None:
    found = findings(waited("Tensor.item", loading_ms=0.05, device_ms=1, own_ms=12))
    assert found["sync-each-step"].cost_ms == pytest.approx(0.9, abs=0.05)


def test_a_device_that_wants_for_batches_does_not_idle_because_of_a_wait() -> None:
    found = findings(waited("Tensor.item", loading_ms=20, device_ms=8, own_ms=0))
    assert "sync-each-step" not in found


def test_a_wait_after_which_work_follows_at_once_is_free() -> None:
    call = Call(0, "Tensor.item", "train.py:35", _STEPS)
    case = case_of((SYNC, 0.01, 0), *PASSES, clock="device", calls=[call])
    assert findings(case) == {}


def test_page_locking_in_the_loop_is_named() -> None:
    call = Call(0, "Tensor.pin_memory", "train.py:22", _STEPS)
    found = only(case_of((CALL, 1, 0), *PASSES, clock="device", calls=[call]))
    assert found.rule == "needless-pinning"


@pytest.mark.parametrize("is_synchronized", [True, False])
def test_a_clock_behind_work_needs_a_wait(is_synchronized: bool) -> None:
    timer = Call(0, "timer", "train.py:36", 2 * _STEPS)
    wait = Call(1, "torch.cuda.synchronize", "train.py:35", _STEPS)
    middle = [(SYNC, 0.01, 1)] if is_synchronized else []
    case = case_of(*PASSES, *middle, (CALL, 0.001, 0), clock="device", calls=[timer, wait])
    assert ("timer-without-sync" in findings(case)) is not is_synchronized


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("tf32", "no-tf32"), ("amp", "no-amp"), ("cudnn-benchmark", "cudnn-benchmark-off"),
        ("channels-last", "nchw-on-tensor-cores"),
    ],
)  # fmt: skip
def test_switches_of_a_device_are_measured(name: str, rule: str) -> None:
    case = case_of(*PASSES, clock="device", replays=[replay(name, 10, 6, rows=[64, 64])])
    found = only(case)
    assert found.rule == rule
    assert found.cost_ms == pytest.approx(3.6, rel=0.05)


def test_searching_for_algorithms_pays_where_shapes_stay() -> None:
    model = {**made_model(), "shapes": [[64, 3, size, size] for size in (32, 40, 48, 56)]}
    entry = replay("cudnn-benchmark", 10, 6, rows=[64, 64])
    case = case_of(*PASSES, clock="device", replays=[entry], model={"models": [model]})
    assert findings(case) == {}


def test_lower_precision_is_credited_with_what_tf32_alone_does_not_gain() -> None:
    both = [replay("tf32", 10, 6), replay("amp", 10, 4)]
    found = findings(case_of(*PASSES, clock="device", replays=both))
    assert found["no-amp"].cost_ms == pytest.approx(1.8, rel=0.1)


def test_small_operations_are_bounded_by_twice_the_batch() -> None:
    entry = replay("double-batch", 10, 10.5, batch=64)
    found = only(case_of(*PASSES, clock="device", replays=[entry]))
    assert found.rule == "launch-bound"
    entry = replay("double-batch", 10, 19, batch=64)
    assert findings(case_of(*PASSES, clock="device", replays=[entry])) == {}


def test_a_smaller_batch_than_the_loop_has_says_nothing_of_small_operations() -> None:
    entry = replay("double-batch", 2, 2.1, batch=64)
    assert findings(case_of(*PASSES, clock="device", replays=[entry])) == {}


def test_waiting_for_launches_costs_what_could_run_side_by_side() -> None:
    flags = {"flags": {"CUDA_LAUNCH_BLOCKING": "1"}}
    for twice, cost in ((17.5, 2.25), (12.0, 1.8)):  # of 9 ms: 2.5 and 8 of 10 go into starting
        entry = replay("double-batch", 10, twice, batch=64)
        found = only(case_of(*PASSES, clock="device", replays=[entry], settings=flags))
        assert found.rule == "anomaly-detection"
        assert found.cost_ms == pytest.approx(cost, rel=0.05)


def test_what_the_cache_must_fetch_again_counts() -> None:
    call = Call(0, "torch.cuda.empty_cache", "train.py:38", _STEPS)
    entry = replay("empty-cache", 14, 10)
    found = only(case_of(*PASSES, (CALL, 2, 0), clock="device", calls=[call], replays=[entry]))
    assert found.cost_ms == pytest.approx(4, rel=0.1)


def test_making_a_tensor_on_the_processor_counts_with_its_copy() -> None:
    made = {"train.py:22": {"does": ["torch"], "builds": True}}
    call = Call(0, "Tensor.to", "train.py:22", _STEPS, facts={"pageable": _STEPS})
    found = only(
        case_of(
            ("", 5, None),
            (COPY, 1, 0),
            *PASSES,
            clock="device",
            calls=[call],
            statements=made,
            line=Line("train.py:22", "main", "", "", _STEPS),
        )
    )
    assert found.rule == "cpu-built-tensor"
    assert found.cost_ms == pytest.approx(6, rel=0.1)


def test_the_allocator_is_named_by_its_counters() -> None:
    counts = {"allocator": {"num_alloc_retries": 3, "num_device_alloc": 80}}
    assert only(case_of(*PASSES, clock="device", settings=counts)).rule == "allocator-thrash"
    counts = {"allocator": {"num_alloc_retries": 0, "num_device_alloc": 2}}
    assert findings(case_of(*PASSES, clock="device", settings=counts)) == {}


def test_giving_the_cache_back_and_copying_models_are_named() -> None:
    for what, rule in (
        ("torch.cuda.empty_cache", "empty-cache-in-loop"),
        ("DataParallel.replicate", "data-parallel"),
    ):
        call = Call(0, what, "train.py:38", _STEPS)
        assert only(case_of(*PASSES, (CALL, 2, 0), clock="device", calls=[call])).rule == rule


def test_copying_a_model_costs_what_its_passes_take_longer() -> None:
    call = Call(0, "DataParallel.replicate", "train.py:38", _STEPS)
    for then, is_found in ((5.0, True), (9.9, False)):
        entry = replay("data-parallel", 10, then)
        case = case_of(*PASSES, (CALL, 2, 0), clock="device", calls=[call], replays=[entry])
        found = findings(case)
        assert ("data-parallel" in found) is is_found
        if is_found:
            learning = case.attribution.of("forward") + case.attribution.of("backward")
            assert found["data-parallel"].cost_ms == pytest.approx(learning / 2, rel=0.05)


def test_gradients_exchanged_too_often_are_counted() -> None:
    model = made_model(**{"class": "DistributedDataParallel"})
    model["modes"]["train"]["synced"] = 4 * _STEPS
    found = only(case_of(*PASSES, model={"models": [model]}))
    assert found.rule == "gradient-sync"
    assert found.cost_ms == 0


def test_needless_exchanges_cost_what_no_backward_pass_hides() -> None:
    model = made_model(**{"class": "DistributedDataParallel"})
    model["modes"]["train"]["synced"] = 4 * _STEPS
    model["exchanges_ns"] = [9 * MS // 10, MS, 30 * MS]
    case = case_of(*PASSES, model={"models": [model]})
    backward = case.attribution.of("backward")
    assert only(case).cost_ms == pytest.approx(min(3.0, 0.75 * backward), rel=0.1)
    model["exchanges_ns"] = [0]
    assert "gradient-sync" not in findings(case_of(*PASSES, model={"models": [model]}))


def test_letting_go_of_wide_batches_counts() -> None:
    tensors = [["[0]", "float64", [64, 60_000], 64 * 60_000 * 8, False, True, "cpu"]]
    loader = made_loader(tensors=tensors, batch_bytes=tensors[0][3])
    worker = Process(100, loader=0, number=0, batch_count=_STEPS, busy=_STEPS * MS)
    worker.batches = [[number, 0, MS, MS, 0] for number in range(_STEPS)]

    def found_at(where: str) -> dict[str, Finding]:
        line = Line(where, "main", "", "", _STEPS)
        return findings(
            case_of(("", 4, None), *PASSES, loader=loader, line=line, processes=[worker])
        )

    assert found_at(loader.used_at or "")["wide-dtype"].cost_ms == pytest.approx(2, rel=0.1)
    assert "wide-dtype" not in found_at("train.py:99")
