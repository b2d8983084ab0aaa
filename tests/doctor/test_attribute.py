"""Every millisecond of a step goes to one part."""

import pytest

from slipstream.doctor.attribute import attribute
from slipstream.doctor.capture import Capture, Loader, Process, Span, StageTimes
from slipstream.doctor.learning import forward_passes

MS = 1_000_000


def loader(number: int = 0, workers: int = 2) -> Loader:
    return Loader(
        id=number, made_at="train.py:3", used_at="train.py:9", dataset="Photos", dataset_id=number,
        kind="map", length=100, batch_size=8, workers=workers, prefetch=2, pin_memory=False,
        persistent=False, start_method="fork", in_order=True, shuffled=True, drop_last=False,
        collate="default_collate",
    )  # fmt: skip


class Clock:
    """Spans one behind the other."""

    def __init__(self) -> None:
        self.now = 0
        self.spans: list[Span] = []

    def add(self, kind: str, ms: float, detail: object = None) -> Span:
        span = Span(kind, self.now, self.now + int(ms * MS), detail)
        self.now = span.end
        self.spans.append(span)
        return span

    def idle(self, ms: float) -> None:
        self.now += int(ms * MS)


def capture_of(spans: list[Span], **more: object) -> Capture:
    made = Capture("train.py", {"usable_cores": 2}, "", spans=spans, loaders=[loader(), loader(1)])
    for name, value in more.items():
        setattr(made, name, value)
    return made


def steps(count: int, *, epoch: int = 1, clock: Clock | None = None) -> Clock:
    clock = clock or Clock()
    for number in range(count):
        clock.add("next", 5, [0, epoch, number])
        clock.add("forward", 2)
        clock.add("backward", 3)
        clock.idle(1)
        clock.add("optimizer", 1)
    clock.add("next", 0.5, [0, epoch, -1])
    return clock


def test_parts_add_up() -> None:
    found = attribute(capture_of(steps(20).spans))
    assert found.step_ms == pytest.approx(12, rel=0.1)
    assert sum(found.parts.values()) == pytest.approx(found.step_ms)
    assert found.parts["forward"] == pytest.approx(2)
    assert found.parts["backward"] == pytest.approx(3)
    assert found.parts["optimizer"] == pytest.approx(1)
    assert found.parts["unattributed"] == pytest.approx(1)
    assert found.parts["loading"] == pytest.approx(5, rel=0.1)


def test_the_innermost_span_counts() -> None:
    clock = Clock()
    for number in range(10):
        outer = clock.add("next", 10, [0, 1, number])
        clock.spans.append(Span("fetch", outer.start + 1 * MS, outer.end - 1 * MS))
        clock.spans.append(Span("garbage", outer.start + 2 * MS, outer.start + 5 * MS))
        clock.add("backward", 4)
    found = attribute(capture_of(clock.spans))
    assert found.parts["garbage"] == pytest.approx(3)
    assert found.parts["loading"] == pytest.approx(7)
    assert found.step_ms == pytest.approx(14)


def test_evaluation_inside_a_step_is_evaluation() -> None:
    clock = Clock()
    for number in range(12):
        clock.add("next", 1, [0, 1, number])
        clock.add("backward", 4)
        if number % 3 == 2:
            clock.add("start", 1, [1, 100 + number])
            for k in range(3):
                clock.add("next", 1, [1, 100 + number, k])
                clock.add("forward", 2)
            clock.add("next", 1, [1, 100 + number, -1])
    found = attribute(capture_of(clock.spans))
    assert found.parts["evaluation"] == pytest.approx(11 / 3, rel=0.35)
    assert "forward" not in found.parts
    assert found.loading is not None and found.loading.loader.id == 0


def test_the_loop_is_where_backward_passes_are() -> None:
    clock = Clock()
    for number in range(30):
        clock.add("next", 1, [1, 1, number])
        clock.add("forward", 1)
    steps(5, epoch=2, clock=clock)
    found = attribute(capture_of(clock.spans))
    assert found.loading is not None and found.loading.loader.id == 0


def test_epochs_are_apart() -> None:
    clock = Clock()
    for epoch in range(3):
        clock.add("start", 20, [0, epoch])
        steps(6, epoch=epoch, clock=clock)
        clock.idle(100)
    found = attribute(capture_of(clock.spans))
    assert found.step_ms < 13  # what happens between epochs is no part of a step
    assert found.epochs.gaps_ms == pytest.approx((125, 125))
    assert found.epochs.starts_ms == pytest.approx((25, 25, 25))


def test_a_wait_while_the_device_is_busy_is_free() -> None:
    clock = Clock()
    for span in steps(20, clock=clock).spans:
        # The device is 40 ms behind and works without a gap.
        start = span.start + 40 * MS
        span.device = (
            (start, start) if span.kind == "next" else (start, start + span.end - span.start)
        )
    moved = capture_of(clock.spans, clock="device")
    found = attribute(moved)
    assert found.parts.get("loading", 0.0) == 0.0
    assert sum(found.parts.values()) == pytest.approx(found.step_ms)


def test_a_loop_without_a_loader() -> None:
    clock = Clock()
    for _ in range(12):
        clock.idle(20)
        clock.add("forward", 2)
        clock.add("backward", 3)
        clock.add("optimizer", 1)
    found = attribute(capture_of(clock.spans, loaders=[]))
    assert found.loading is None
    assert found.step_ms == pytest.approx(26)
    assert found.parts["unattributed"] == pytest.approx(20)


def test_nothing_at_all() -> None:
    found = attribute(capture_of([]))
    assert found.step_ms == 0.0 and not found.steps


def test_what_workers_take() -> None:
    process = Process(
        7, 0, 0, busy=60 * MS, batch_count=3, samples=24, run_delay=6 * MS,
        stages={
            "dataset": StageTimes(24, 48 * MS, 12 * MS), "collate": StageTimes(3, 9 * MS, 9 * MS),
        },
        batches=[[k, 0, 20 * MS, 8 * MS, 2 * MS] for k in range(3)],
    )  # fmt: skip
    found = attribute(capture_of(steps(10).spans, processes=[process])).loading
    assert found is not None
    assert (found.batch_ms, found.cpu_ms, found.delay_ms) == pytest.approx((20, 8, 2))
    assert found.blocked_ms == pytest.approx(10)
    assert found.stages == pytest.approx({"dataset": 16, "collate": 3})
    assert found.samples == 8


def loop_with_validation(*, without_gradients: bool, training: bool = False) -> Clock:
    """Without a loader, as scripts do that draw their batches by hand."""
    clock = Clock()
    for number in range(12):
        if number % 3 == 0:
            for _ in range(6):
                clock.add("forward", 5, [0, training, not without_gradients])
        clock.add("forward", 2, [0, True, True])
        clock.add("backward", 3)
        clock.add("optimizer", 1, 7)
    return clock


LEARNS = {"models": [{"with_gradient": 4}]}


def test_validation_by_hand_is_evaluation() -> None:
    spans = loop_with_validation(without_gradients=True).spans
    found = attribute(capture_of(spans, loaders=[], model=LEARNS))
    assert found.parts["evaluation"] == pytest.approx(7.5)
    assert found.parts["forward"] == pytest.approx(2)


@pytest.mark.parametrize(
    ("spans", "model"),
    [
        # Another model's, such as a teacher's.
        (loop_with_validation(without_gradients=True).spans, {"models": [{"with_gradient": 0}]}),
        (loop_with_validation(without_gradients=False).spans, LEARNS),
        (loop_with_validation(without_gradients=True, training=True).spans, LEARNS),
    ],
)
def test_other_passes_are_not(spans: list[Span], model: dict[str, object]) -> None:
    found = attribute(capture_of(spans, loaders=[], model=model))
    assert "evaluation" not in found.parts


def test_which_passes_are_learned_from() -> None:
    clock = Clock()
    for detail in ([0, False, True], [0, True, True], [1, False, True], [0, True, False]):
        clock.add("forward", 1, detail)
    clock.add("backward", 1)
    clock.add("forward", 1, [0, True, True])
    assert [learns for _, learns in forward_passes(clock.spans)] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_labels_that_a_model_makes_for_itself_are_no_validation() -> None:
    clock = Clock()
    for number in range(12):
        clock.add("next", 1, [0, 1, number])
        clock.add("forward", 5, [0, False, False])
        clock.add("forward", 2, [0, True, True])
        clock.add("backward", 3)
        clock.add("optimizer", 1, 7)
    found = attribute(capture_of(clock.spans, model=LEARNS))
    assert "evaluation" not in found.parts
    assert found.parts["forward"] == pytest.approx(7)


def test_two_optimizers_make_one_step() -> None:
    clock = Clock()
    for _ in range(12):
        for optimizer in (7, 8):
            clock.add("forward", 2)
            clock.add("backward", 3)
            clock.add("optimizer", 1, optimizer)
    assert attribute(capture_of(clock.spans, loaders=[])).step_ms == pytest.approx(12)
