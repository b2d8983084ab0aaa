"""What waits and copies do to a device: how long it has nothing to do because of them."""

from collections import defaultdict

from slipstream.doctor.capture import (
    BACKWARD,
    COPY,
    FORWARD,
    NEXT,
    OPTIMIZER,
    START,
    SYNC,
    Call,
    Span,
)
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


def caused_ms(case: Case, calls: list[Call]) -> dict[int, float]:
    """What these calls cost, by their numbers, in milliseconds of a step: what the device idles
    after them, but all together no more than the loop waits in them. Without them the loop would be
    that much earlier with the next work, and no more: its own work takes as long as ever.
    """
    after = idle_ms(case)
    idle = {call.id: after[call.id] for call in calls if after.get(call.id)}
    waited = sum(_waited_ms(case, number) for number in idle)
    share = min(1.0, waited / sum(idle.values())) if idle else 0.0
    return {number: ms * share for number, ms in idle.items()}


def idle_ms(case: Case) -> dict[int, float]:
    """Milliseconds of a step that the device idles for each call that waited for it.

    After a wait the device has nothing to do until the loop gives it something: from when it got
    to the wait to the start of whatever comes next, on its own clock. While the loop waits for a
    batch, the device idles for want of it.
    """
    idle: defaultdict[int, float] = defaultdict(float)
    steps = case.attribution.steps
    spans = [span for step in steps for span in step.spans if span.device is not None]
    for number, span in enumerate(spans):
        if span.kind in (SYNC, COPY) and span.device is not None and span.detail is not None:
            ns = _idle_after(span, spans[number + 1 : number + 1 + _LOOKED_AT])
            idle[span.detail] += ns * 1e-6 / len(steps)
    return dict(idle)


def _idle_after(span: Span, later: list[Span]) -> int:
    """Until the device gets something to do again, be it in the next step, less the loading."""
    assert span.device is not None
    start, loading = span.device[0], 0
    for other in later:
        if other.start < span.end or other.device is None:
            continue
        if other.kind in (NEXT, START):
            loading += max(0, other.device[1] - max(start, other.device[0]))
        elif other.kind in _WORK:
            return max(0, other.device[0] - start - loading)
    return 0


def _waited_ms(case: Case, number: int) -> float:
    """That the loop stood in a call, in milliseconds of a step."""
    steps = case.attribution.steps
    spans = (span for step in steps for span in step.spans)
    waited = sum(s.end - s.start for s in spans if s.kind in (SYNC, COPY) and s.detail == number)
    return waited * 1e-6 / len(steps)


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
