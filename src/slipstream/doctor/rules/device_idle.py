"""What waits and copies do to a device: how long it has nothing to do because of them."""

from collections import defaultdict

from slipstream.doctor.capture import BACKWARD, COPY, FORWARD, OPTIMIZER, SYNC, Call, Span
from slipstream.doctor.rules.case import Case

HIDDEN = (
    "Tensor.__bool__", "Tensor.nonzero", "Tensor.masked_select", "Tensor.unique", "Tensor[mask]",
    "torch.masked_select", "torch.unique", "torch.nonzero", "torch.argwhere", "torch.bincount",
)  # fmt: skip
OPEN = (
    "Tensor.item", "Tensor.tolist", "Tensor.cpu", "Tensor.numpy", "Tensor.__float__",
    "Tensor.__int__", "torch.cuda.synchronize",
)  # fmt: skip
_WORK = (FORWARD, BACKWARD, OPTIMIZER, COPY)
_LOOKED_AT = 40  # spans
COPIES = ("Tensor.to", "Tensor.cuda", "torch.tensor", "torch.as_tensor", "torch.from_numpy")


def idle_ms(case: Case) -> dict[int, float]:
    """Milliseconds of a step that the device idles for each call that waited for it.

    After a wait the device has nothing to do until the loop gives it something: from when it got
    to the wait to the start of whatever comes next, on its own clock.
    """
    idle: defaultdict[int, float] = defaultdict(float)
    steps = case.attribution.steps
    spans = [span for step in steps for span in step.spans if span.device is not None]
    for number, span in enumerate(spans):
        if span.kind in (SYNC, COPY) and span.device is not None and span.detail is not None:
            until = _next_work(spans[number + 1 : number + 1 + _LOOKED_AT], span)
            if until is not None:
                idle[span.detail] += max(0, until - span.device[0]) * 1e-6 / len(steps)
    return dict(idle)


def _next_work(later: list[Span], span: Span) -> int | None:
    """When the device gets something to do again, be it in the next step."""
    for other in later:
        if other.kind in _WORK and other.start >= span.end and other.device is not None:
            return other.device[0]
    return None


def is_built_here(case: Case, call: Call) -> bool:
    """Whether the line makes what it copies."""
    return bool(case.capture.statements.get(call.where or "", {}).get("builds"))


def built_lines(case: Case) -> set[str]:
    """Lines that make a tensor on the processor and copy it to a device."""
    if not case.on_device:
        return set()
    return {call.where or "" for call in case.calls(*COPIES) if is_built_here(case, call)}


def copies(case: Case) -> list[Call]:
    """To a device, in steps, of what was not made on the same line; the dearest first."""
    return [
        call
        for call in case.calls(*COPIES)
        if case.call_ms(call) > 0 and not is_built_here(case, call)
    ]


def is_pageable(call: Call) -> bool:
    """Most of the copies came from memory that is not page-locked."""
    return int(call.facts.get("pageable", 0)) * 2 > call.count


def is_blocking(call: Call) -> bool:
    """Most of the copies made the loop wait."""
    return int(call.facts.get("blocking", 0)) * 2 > call.count
