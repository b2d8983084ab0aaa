"""What it takes to start the workers of a loader again, for the rules that ask why."""

from dataclasses import dataclass

from slipstream.doctor.capture import NEXT, START, Loader
from slipstream.doctor.rules.case import Case


@dataclass(frozen=True)
class Restarts:
    """Of one loader. `extra_ms` is what a start takes beyond one of workers that are there."""

    loader: Loader
    count: int  # starts seen, the first one among them
    extra_ms: float
    steps: float  # of the loop, from one start to the next

    @property
    def cost_ms(self) -> float:
        """Of each step of the loop."""
        return self.extra_ms / max(1.0, self.steps)


def restarts_of(case: Case) -> list[Restarts]:
    """Of every loader with workers, the dearest first."""
    found = [_of_loader(case, loader) for loader in case.capture.loaders if loader.workers]
    return sorted((r for r in found if r is not None), key=lambda r: -r.cost_ms)


def _of_loader(case: Case, loader: Loader) -> Restarts | None:
    spans = sorted(
        (s for s in case.capture.spans if s.kind in (START, NEXT) and s.detail[0] == loader.id),
        key=lambda span: span.start,
    )
    starts, firsts, ends, waits = [], [], [], []
    for span in spans:
        took = (span.end - span.start) * 1e-6
        if span.kind == START:
            starts.append(took)
        elif span.detail[2] < 0:
            ends.append(took)
        elif span.detail[2] == 0:
            firsts.append(took)
        else:
            waits.append(took)
    if not starts or not firsts:
        return None
    batch_ms = _batch_ms(case, loader)
    before, behind = _watching_ms(case, loader)
    # Of workers that are there already the first batch is awaited, too.
    again = starts[1:] or starts
    extra = sum(again) / len(again)
    first = firsts[1:] or firsts
    extra += max(0.0, sum(first) / len(first) - batch_ms - before)
    if ends:
        extra += max(0.0, sum(ends) / len(ends) - behind)
    loop = case.loading
    steps = float(loader.length or len(waits))
    if loop is not None and loop.loader.id != loader.id:
        steps = len(case.attribution.steps) / len(starts)
    return Restarts(loader, len(starts), extra, steps)


def _watching_ms(case: Case, loader: Loader) -> tuple[float, float]:
    """What a worker does for us before its first batch is given away, and when it ends."""
    known = [
        process.facts["watching_ns"]
        for process in case.capture.processes
        if process.loader == loader.id and "watching_ns" in process.facts
    ]
    if not known:
        return 0.0, 0.0
    before = sum(parts["set_up"] + parts["first"] for parts in known)
    behind = sum(parts["write"] for parts in known)
    return before * 1e-6 / len(known), behind * 1e-6 / len(known)


def _batch_ms(case: Case, loader: Loader) -> float:
    own = [p for p in case.capture.processes if p.loader == loader.id and p.batch_count]
    batches = sum(process.batch_count for process in own)
    return sum(process.busy for process in own) * 1e-6 / max(1, batches)
