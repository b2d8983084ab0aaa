"""Recordings made by hand: a loop whose steps, waits and stages are given."""

from typing import Any

from slipstream.doctor.attribute import attribute
from slipstream.doctor.capture import (
    BACKWARD,
    FORWARD,
    NEXT,
    START,
    Capture,
    Line,
    Loader,
    Process,
    Span,
    StageTimes,
)
from slipstream.doctor.rules.case import Case

MS = 1_000_000
_STEPS = 40


def made_loader(**changes: Any) -> Loader:
    """One with two workers, as torch makes it."""
    values: dict[str, Any] = {
        "id": 0, "made_at": "train.py:9", "used_at": "train.py:20", "dataset": "Data",
        "dataset_id": 0, "kind": "map", "length": _STEPS, "batch_size": 8, "workers": 2,
        "prefetch": 2, "pin_memory": False, "persistent": False, "start_method": "fork",
        "in_order": True, "shuffled": True, "drop_last": False, "collate": "default_collate",
        "tensors": [["[0]", "float32", [8, 16], 512, False, True, "cpu"]], "batch_bytes": 512,
        "facts": {"read_at": "train.py:3", "samples": 10_000},
    }  # fmt: skip
    return Loader(**{**values, **changes})


def made_case(
    *,
    wait_ms: float,
    rest_ms: float = 10.0,
    stages: dict[str, tuple[float, float]] | None = None,  # milliseconds of a batch: wall, cpu
    delay_ms: float = 0.0,
    hand_over_ms: float = 0.1,
    loader: Loader | None = None,
    epochs: int = 1,
    start_ms: float = 20.0,
    cores: int = 8,
    lines: tuple[Line, ...] = (),
    loop_delay_ms: float = 0.0,
    **process: Any,
) -> Case:
    """A run of forty steps in each epoch; `process` has facts of each process that reads."""
    loader = loader or made_loader()
    stages = stages or {"dataset": (1.0, 1.0)}
    spans: list[Span] = []
    now = delayed = 0
    for epoch in range(epochs):
        spans.append(Span(START, now, now + int(start_ms * MS), [0, epoch]))
        now = spans[-1].end
        for number in (*range(_STEPS), -1):
            end = now + int((wait_ms if number >= 0 else 0.01) * MS)
            detail = [0, epoch, number, delayed, delayed]
            spans.append(Span(NEXT, now, end, detail, cpu=int(hand_over_ms * MS)))
            now = end
            if number >= 0:
                half = int(rest_ms * MS / 2)
                spans += [
                    Span(FORWARD, now, now + half),
                    Span(BACKWARD, now + half, now + 2 * half),
                ]
                now += 2 * half
                delayed += int(loop_delay_ms * MS)
    count = max(1, loader.workers)
    batches = _STEPS * epochs // count
    capture = Capture(
        script="train.py", machine={"usable_cores": cores}, began_at="", length=now, spans=spans,
        loaders=[loader],
        processes=[
            _process(number, batches, stages, delay_ms, loader, lines, dict(process))
            for number in range(count)
        ],
    )  # fmt: skip
    return Case(capture, attribute(capture))


def _process(
    number: int, batches: int, stages: dict[str, tuple[float, float]], delay_ms: float,
    loader: Loader, lines: tuple[Line, ...], changes: dict[str, Any],
) -> Process:  # fmt: skip
    took = sum(wall for wall, _ in stages.values())
    cpu = sum(used for _, used in stages.values())
    samples = batches * (loader.batch_size or 1)
    counts = changes.pop("counts", {})
    made = Process(
        pid=100 + number, loader=0, number=number if loader.workers else None,
        stages={
            name: StageTimes(
                counts.get(name, samples if name == "dataset" else batches),
                int(wall * batches * MS), int(used * batches * MS),
            )
            for name, (wall, used) in stages.items()
        },
        batches=[
            [k, int(k * took * MS), int((k + 1) * took * MS), int(cpu * MS), int(delay_ms * MS)]
            for k in range(batches)
        ],
        batch_count=batches, samples=samples, busy=int(took * batches * MS),
        run_delay=int(delay_ms * batches * MS), read_chars=0, read_bytes=0, lines=list(lines),
    )  # fmt: skip
    for name, value in changes.items():
        setattr(made, name, value)
    return made
