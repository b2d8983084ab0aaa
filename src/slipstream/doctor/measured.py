"""A recorded run as the pipeline that the simulation starts from."""

from collections.abc import Sequence

from slipstream.doctor.attribute import LOADING, Attribution, Loading
from slipstream.doctor.capture import Capture
from slipstream.doctor.pipeline import Pipeline

_MS = 1e-6
_MOST_TIMES = 400
_ENOUGH_CORES = 4096.0


def pipeline_of(
    capture: Capture, attribution: Attribution, *, as_it_was: bool = False
) -> Pipeline | None:
    """What the simulation starts from; None without a loader that was watched. `as_it_was`: what
    batches waited for a core stays in their times, whoever had it; there is no lack of them then.
    """
    loading = attribution.loading
    if loading is None or not attribution.steps or loading.batch_ms <= 0:
        return None
    loader = loading.loader
    fetches = [
        max(0.0, (end - start - (0 if as_it_was else delay)) * _MS)
        for process in loading.processes
        for _, start, end, _, delay in process.batches
    ]
    waits = {LOADING, "copy"}
    loops = [
        max(0.0, (s.end - s.start - sum(s.parts.get(part, 0) for part in waits)) * _MS)
        for s in attribution.steps
    ]
    on_device = capture.clock == "device"
    return Pipeline(
        workers=loader.workers,
        prefetch=loader.prefetch or 2,
        batch_size=loader.batch_size or max(1, round(loading.samples)),
        cores=_ENOUGH_CORES if as_it_was else float(capture.machine.get("usable_cores", 1)),
        fetch_ms=tuple(_thinned(fetches)),
        loop_ms=tuple(_thinned(loops)),
        fetch_cpu_share=min(1.0, loading.cpu_ms / max(loading.batch_ms - loading.delay_ms, 1e-6)),
        decode_share=_decode_share(loading),
        hand_over_ms=loading.hand_over_ms,
        loop_cores=1.0 if on_device else float(capture.settings.get("loop_cores", 1.0)),
        copy_ms=attribution.of("copy"),
        pinned=loader.pin_memory,
        in_order=loader.in_order,
        device=on_device,
        launch_ms=0.5 * min(loops, default=0.0) if on_device else 0.0,
    )


def _decode_share(loading: Loading) -> float:
    decoding = sum(ms for name, ms in loading.stages.items() if name.startswith("decode"))
    return min(1.0, decoding / loading.batch_ms)


def _thinned(times: Sequence[float]) -> list[float]:
    """At most so many, spread over all."""
    stride = max(1, -(-len(times) // _MOST_TIMES))
    return [round(time, 4) for time in times[::stride]]
