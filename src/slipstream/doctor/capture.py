"""What was recorded of a run: plain values, a JSON file between the recorder and all that follows.

Times are whole nanoseconds since the recording began; counts and bytes are whole numbers. What was
not measured is None or absent, never 0.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError

SCHEMA = "slipstream.capture/1"

# Kinds of spans of the thread that runs the training loop. Spans nest; the innermost counts.
NEXT = (
    # asked a loader for a batch; detail: [loader, iteration, number, waited for a core before, and
    # at its end], number -1 at the end of the iteration
    "next"
)
FETCH, COLLATE = "fetch", "collate"  # inside `next`, where the loop's own process reads
START = "start"  # a loader's iterator was made, workers and all; detail: [loader, iteration]
COPY = "copy"  # from the processor's memory to a device; detail: a `Call` number
FORWARD = (
    # detail: [model, in training, with gradients], and of those in evaluation with gradients
    # whether their graph was gone before the next backward pass
    "forward"
)
BACKWARD, OPTIMIZER, ZERO_GRAD = "backward", "optimizer", "zero-grad"
CLIP = "clip"  # gradients clipped
SYNC = "sync"  # the loop waited for the device; detail: a `Call` number
SAVE = "save"  # torch.save and its like
GARBAGE = "garbage"  # Python's collector
CALL = "call"  # a call that is counted for itself; detail: a `Call` number
EVALUATE = "evaluate"  # found later: a loop over another loader, without a backward


@dataclass(slots=True)
class Span:
    """A stretch of the loop's thread. `device`: the same stretch on the clock of the device."""

    kind: str
    start: int
    end: int
    detail: Any = None
    cpu: int | None = None
    device: tuple[int, int] | None = None


@dataclass
class StageTimes:
    """Times that a stage of loading took itself, without the stages inside it.

    `blocked` is wall time in which the thread neither ran nor waited for a core: for a disk, a
    network, a lock or a sleep. `shape` counts durations: {bits of the number of µs: how often}.
    """

    count: int = 0
    wall: int = 0
    cpu: int = 0
    longest: int = 0
    shape: dict[str, int] = field(default_factory=dict)


@dataclass
class Line:
    """How often a sampling thread found a thread at a line of the user's code. `leaf` is the
    function that ran, `stage` what it was part of, `outer` the line of the loop that called it.
    """

    where: str
    function: str
    leaf: str
    stage: str
    count: int
    outer: str = ""


@dataclass
class Process:
    """A process that reads samples: a worker, or the loop's own where it has none."""

    pid: int
    loader: int
    number: int | None  # of the worker; None for the loop's process
    began: int = 0
    ready: int | None = None  # when it could begin to read
    stages: dict[str, StageTimes] = field(default_factory=dict)
    # [number of the batch, start, end, processor time, waited for a core], the latest ones
    batches: list[list[int]] = field(default_factory=list)
    batch_count: int = 0
    samples: int = 0
    busy: int = 0  # of the whole life
    run_delay: int | None = None  # ready to run, without a core
    read_chars: int | None = None  # read calls, page cache and all
    read_bytes: int | None = None  # that came from storage
    opens: int = 0
    opened_again: int = 0  # of these, files that it had opened before
    folders: dict[str, int] = field(default_factory=dict)  # where the files lie that it opened
    threads: int | None = None
    library_threads: dict[str, int] = field(default_factory=dict)
    memory: list[list[int]] = field(default_factory=list)  # [time, private bytes, shared bytes]
    lines: list[Line] = field(default_factory=list)
    sample_interval: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Loader:
    """A loader that the script iterated over."""

    id: int
    made_at: str | None
    used_at: str | None
    dataset: str
    dataset_id: int  # loaders over the same object have the same
    kind: str  # "map", "iterable", "slipstream"
    length: int | None  # batches
    batch_size: int | None
    workers: int
    prefetch: int | None
    pin_memory: bool
    persistent: bool
    start_method: str | None
    in_order: bool
    shuffled: bool
    drop_last: bool
    collate: str
    timeout: float = 0.0
    transforms: list[str] = field(default_factory=list)
    # Of a batch as the loop gets it: [path, dtype, shape, bytes, is pinned, is contiguous]
    tensors: list[list[Any]] = field(default_factory=list)
    batch_bytes: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Call:
    """Calls of one kind from one line: `.item()`, `torch.save`, a copy, …"""

    id: int
    what: str
    where: str | None
    count: int = 0
    wall: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Rung:
    """A step of the ladder: the loop with a part of loading taken away."""

    name: str
    step_ms: list[float]


@dataclass
class Capture:
    """A recorded run."""

    script: str
    machine: dict[str, Any]
    began_at: str  # wall clock, ISO
    length: int = 0  # of the recording
    ended: str = "window"  # or "script", "error"
    clock: str = "host"  # or "device": spans have device times
    spans: list[Span] = field(default_factory=list)
    loaders: list[Loader] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)  # of the loop's thread
    sample_interval: int | None = None
    samples: list[list[int]] = field(default_factory=list)  # [time, which of `lines`]
    # What the statements at these lines do, in names from a fixed list: see record/statements.py
    statements: dict[str, dict[str, Any]] = field(default_factory=dict)
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    model: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    memory: list[list[int]] = field(default_factory=list)  # [time, resident bytes, device bytes]
    overhead: dict[str, Any] = field(default_factory=dict)
    # Measured when the window was over, on copies: see record/replay.py
    replays: list[dict[str, Any]] = field(default_factory=list)
    ladder: list[Rung] = field(default_factory=list)
    storage: list[dict[str, Any]] = field(default_factory=list)
    schema: str = SCHEMA


def save_capture(capture: Capture, path: Path) -> None:
    """Write it as JSON."""
    path.write_text(json.dumps(dataclasses.asdict(capture), separators=(",", ":")))


def load_capture(path: Path) -> Capture:
    """Read what `save_capture` wrote. Raises `UsageError` for anything else."""
    try:
        return capture_from(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is no recording of slipstream doctor: {error}.") from None


def capture_from(values: dict[str, Any]) -> Capture:
    """Of the values in the JSON. Raises `ValueError` for another schema."""
    if values.get("schema") != SCHEMA:
        raise ValueError(f"schema {values.get('schema')!r}, expected {SCHEMA!r}")
    made = {name: _made(name, value) for name, value in values.items()}
    return Capture(**made)


def _made(name: str, value: Any) -> Any:
    if name == "processes":
        return [_process_from(entry) for entry in value]
    kind: Any = _KINDS.get(name)
    return value if kind is None else [kind(**entry) for entry in value]


def _process_from(values: dict[str, Any]) -> Process:
    stages = {name: StageTimes(**times) for name, times in values.get("stages", {}).items()}
    lines = [Line(**line) for line in values.get("lines", ())]
    return Process(**{**values, "stages": stages, "lines": lines})


_KINDS = {"spans": Span, "loaders": Loader, "calls": Call, "lines": Line, "ladder": Rung}
