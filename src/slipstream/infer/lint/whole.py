"""The model as a whole: how long a call takes, and what part of it is not computing in layers."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch

from slipstream.infer.lint import element_wise, launching
from slipstream.infer.lint.fast_path import takes_fast_path
from slipstream.infer.lint.finding import Checked
from slipstream.infer.lint.trace import Trace
from slipstream.infer.subject import Subject
from slipstream.timing import Call, time_in_turns

_PART = 0.25  # of the time that is left
_SHORT_S = 1.0
_FUSED = (
    "torch computes attention or whole encoder layers as one operator each here, which a recording "
    "does not see"
)
_LEAST_CALLS = 8  # that timing in turns makes, however long they take


@dataclass(frozen=True)
class Whole:
    """`tiny_s`: what a layer of each kind takes on one number; empty where it was not timed."""

    model_ms: float
    shares: list[Checked]
    tiny_s: dict[str, float]


def time_whole(subject: Subject, trace: Trace, until: float, ignore: Sequence[str] = ()) -> Whole:
    """Time a call of the model in turns with its element-wise operators, alone, and with operators
    on single numbers. Shares that are ignored get less time. Gradients are off where this is
    called.
    """
    left = until - time.monotonic()
    once_s = _once(subject)
    fused = takes_fast_path(subject)
    if once_s * _LEAST_CALLS > left / 2:
        why = f"a call takes {once_s:.1f} s: there was no time to time it in turns"
        shares = [Checked(rule, "unmeasured", why) for rule in (element_wise.RULE, launching.RULE)]
        return Whole(1e3 * once_s, shares, {})
    parts = [] if element_wise.RULE in ignore else element_wise.element_wise_parts(trace)
    tiny = launching.tiny_calls(subject.device)
    calls: dict[str, Call] = {"model": lambda: subject.inputs(subject.model), **tiny}
    calls |= {part.key: part.call for part in parts}
    why_not = _add_graph(calls, subject)
    seconds = _PART * left
    if {element_wise.RULE, launching.RULE} <= set(ignore):
        seconds = min(seconds, _SHORT_S)
    taken = time_in_turns(calls, seconds=seconds, wait=subject.wait())
    launch = launching.launch_share(trace, taken)
    share = element_wise.element_wise_share(parts, taken)
    if fused:
        share = Checked(element_wise.RULE, "unmeasured", _FUSED)
    if fused or why_not:
        launch = Checked(launching.RULE, "unmeasured", why_not or _FUSED)
    return Whole(
        1e3 * median(taken["model"]),
        [share, launch],
        {kind: median(taken[kind]) for kind in tiny},
    )


def _once(subject: Subject) -> float:
    wait = subject.wait() or (lambda: None)
    wait()
    start = time.perf_counter()
    subject.inputs(subject.model)
    wait()
    return time.perf_counter() - start


def _add_graph(calls: dict[str, Call], subject: Subject) -> str | None:
    """On a GPU the model as a CUDA graph; why not, if it cannot be one."""
    if subject.device.type != "cuda":
        return None
    try:
        with torch.cuda.device(subject.device):
            calls[launching.GRAPHED] = launching.graphed(calls["model"])
    except Exception as error:  # whatever a model does that a graph cannot hold
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return f"the model cannot be captured as a CUDA graph: {first[:120]}"
    return None
