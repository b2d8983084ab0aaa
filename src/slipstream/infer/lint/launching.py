"""What a call spends on starting operators rather than on computing.

On a processor: what each kind of operator takes on a single number, times how many there are. On a
GPU: what is saved when all operators are started at once, as a CUDA graph.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch.nn import functional

from slipstream.infer.lint.finding import Checked, Row
from slipstream.infer.lint.layer import Layer, call_of
from slipstream.infer.lint.shares import checked_share
from slipstream.infer.lint.trace import Trace
from slipstream.timing import Call

RULE = "launch-bound"
OPERATOR = "tiny operator"
REPLAYED = "tiny operator, by its schema"
GRAPHED = "model as a CUDA graph"
_LEAST_SHARE = 0.10
_SAYS = "Starting operators, before anything is computed, takes {} of a call."
_DO = (
    "Larger batches; fewer, larger operators. `slipstream optimize` tries compilers and CUDA "
    "graphs, which start many at once."
)
_KINDS = {
    "convolution": "convolution", "linear": "linear layer", "norm": "norm",
    OPERATOR: "other operator", "view": "view", "module": "call of a module",
}  # fmt: skip


def tiny_calls(device: torch.device) -> dict[str, Call]:
    """One of each kind of operator, on a single number."""
    one = torch.ones(1, 1, 1, 1, device=device)
    row, mean = torch.ones(1, 1, device=device), torch.ones(1, device=device)
    convolution = Layer(
        "convolution", (1, 1, 1, 1), 1, True, one.dtype, one.device,
        kernel=(1, 1), stride=(1, 1), padding=(0, 0), dilation=(1, 1), output_padding=(0, 0),
    )  # fmt: skip
    linear = replace(convolution, kind="linear", input_shape=(1, 1), kernel=())
    nothing: Any = torch.nn.Identity()
    by_schema = torch.ops.aten.relu.default
    return {
        "convolution": call_of([convolution]),
        "linear": call_of([linear]),
        "norm": lambda: functional.batch_norm(one, mean, mean),
        OPERATOR: lambda: torch.relu(row),
        REPLAYED: lambda: by_schema(row),
        "view": lambda: row.view(-1),
        "module": lambda: nothing(row),
    }


def launch_share(trace: Trace, taken: Mapping[str, list[float]]) -> Checked:
    """From rounds in which the model and the tiny calls were timed."""
    if GRAPHED in taken:
        saved = [m - g for m, g in zip(taken["model"], taken[GRAPHED], strict=True)]
        return checked_share(RULE, taken["model"], saved, _LEAST_SHARE, (_SAYS, _DO, []))
    if not trace.computing:
        return Checked(RULE, "absent", "no operators")
    counts = _counts(trace)
    totals = [
        sum(count * taken[kind][number] for kind, count in counts.items())
        for number in range(len(taken["model"]))
    ]
    rows = [
        Row(f"{_KINDS[kind]}, on one number", count=count, now_ms=1e3 * median(taken[kind]))
        for kind, count in counts.items()
    ]
    rows.sort(key=lambda row: -row.count * (row.now_ms or 0.0))
    return checked_share(RULE, taken["model"], totals, _LEAST_SHARE, (_SAYS, _DO, rows))


def graphed(call: Call) -> Call:
    """The same call as one CUDA graph. Raises what torch raises for a model that cannot be one."""
    graph: Any = torch.cuda.CUDAGraph()
    aside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):  # what is set up by first calls must not be part of it
            call()
    torch.cuda.current_stream().wait_stream(aside)
    with torch.cuda.graph(graph):
        call()
    replay: Call = graph.replay
    return replay


def _counts(trace: Trace) -> dict[str, int]:
    counts = dict.fromkeys(_KINDS, 0)
    for op in trace.computing:
        if op.layer is not None:
            counts[op.layer.kind] += 1
        else:
            counts["norm" if op.kind == "norm" else OPERATOR] += 1
    counts["view"], counts["module"] = trace.views, trace.module_calls
    return {kind: count for kind, count in counts.items() if count}
