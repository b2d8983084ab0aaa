"""How a training loop gets its batches, as numbers: what the simulation starts from.

The page of the report has the same type and the same functions in web/src/pipeline.ts.
"""

from dataclasses import dataclass, replace

_PINNED_COPY = 0.5  # a copy from page-locked memory takes about half the time of a pageable one


@dataclass(frozen=True)
class Pipeline:
    """A loader and a loop, with times in milliseconds as they are when nothing else runs.

    `fetch_ms` are times in which one worker makes one batch, and `fetch_cpu_share` is the part of
    them that needs a core; for the rest the worker waits for storage. `decode_share` is the part
    that decoding takes. `storage_ms` is the least time in which the storage could give a batch if
    many ask; 0 where it has no such limit. `loop_ms` are times of a step without its wait for data,
    `loop_fixed_ms` the part of them that does not grow with the batch.

    With `device` the steps run on a device: `loop_ms` is the device's time, `launch_ms` the host's,
    and the host may be `run_ahead` steps ahead (0: it waits for the device in every step).
    `pinned` means that the host does not wait for copies either. With `copy_ahead` a thread takes
    batches from the loader and copies them while the device computes.
    """

    workers: int
    prefetch: int  # batches per worker
    batch_size: int
    cores: float
    fetch_ms: tuple[float, ...]
    loop_ms: tuple[float, ...]
    fetch_cpu_share: float = 1.0
    decode_share: float = 0.0
    storage_ms: float = 0.0
    hand_over_ms: float = 0.0  # the loop's own work for a batch of a worker
    loop_cores: float = 1.0  # that the loop keeps busy while it computes, or launches
    loop_fixed_ms: float = 0.0
    copy_ms: float = 0.0
    copy_ahead: bool = False
    pinned: bool = False
    device: bool = False
    launch_ms: float = 0.0
    run_ahead: int = 2
    in_order: bool = True


def with_batch_size(pipeline: Pipeline, batch_size: int) -> Pipeline:
    """The same samples in batches of another size: all that is done per sample grows with it."""
    scale = batch_size / pipeline.batch_size
    fixed = pipeline.loop_fixed_ms
    return replace(
        pipeline,
        batch_size=batch_size,
        fetch_ms=tuple(ms * scale for ms in pipeline.fetch_ms),
        loop_ms=tuple(min(fixed, ms) + max(0.0, ms - fixed) * scale for ms in pipeline.loop_ms),
        storage_ms=pipeline.storage_ms * scale,
        hand_over_ms=pipeline.hand_over_ms * scale,
        copy_ms=pipeline.copy_ms * scale,
    )


def with_decode_speed(pipeline: Pipeline, times: float) -> Pipeline:
    """Decoding is `times` as fast; the rest of a fetch stays."""
    decode = min(pipeline.decode_share, pipeline.fetch_cpu_share)
    saved = decode - decode / times
    left = 1.0 - saved
    return replace(
        pipeline,
        fetch_ms=tuple(ms * left for ms in pipeline.fetch_ms),
        fetch_cpu_share=(pipeline.fetch_cpu_share - saved) / left,
        decode_share=(decode / times) / left,
    )


def with_pinned(pipeline: Pipeline, pinned: bool) -> Pipeline:
    """Batches in page-locked memory, or not."""
    if pinned == pipeline.pinned:
        return pipeline
    scale = _PINNED_COPY if pinned else 1.0 / _PINNED_COPY
    return replace(pipeline, pinned=pinned, copy_ms=pipeline.copy_ms * scale)


def with_copy_ahead(pipeline: Pipeline, copy_ahead: bool) -> Pipeline:
    """Batches copied to the device ahead, or by the loop."""
    return replace(pipeline, copy_ahead=copy_ahead)
