"""Augmentation on the GPU: against a copy of the same bytes, and against torchvision on all cores.

By itself:  python -m benchmarks.augment_gpu
"""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Any

import torch

import slipstream
from benchmarks.claim import Claim
from slipstream.augment import ColorJitter, RandAugment, TrivialAugmentWide
from slipstream.augment.batch import DrawnBatch
from slipstream.augment.batch_steps import Mirror
from slipstream.augment.finish import Finish
from slipstream.cpu import usable_cores

_BATCH, _SIDE = 1024, 224
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_REPEATS = 200
_SECONDS = 3.0
_NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def measure() -> list[Claim]:
    """Batches of 1024 pictures of 224 x 224, bytes on the GPU as decoders leave them."""
    shape = (_BATCH, _SIDE, _SIDE, 3)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda").permute(0, 3, 1, 2)
    claims = [_measure_finish(pixels, dtype) for dtype in _NAMES]
    rates = {}
    for op in (RandAugment(), TrivialAugmentWide(), ColorJitter(0.4, 0.4, 0.4, 0.1)):
        rates[type(op).__name__] = rate = _rate(slipstream.Augment(op), pixels)
        what = f"{type(op).__name__}, drawn and run, batch {_BATCH}"
        claims.append(Claim(what, rate, f"{_BATCH / rate * 1e3:.2f} ms a batch", unit="images/s"))
    processes = usable_cores()
    theirs, ours = _torchvision_rate(processes), rates["RandAugment"]
    claims.append(
        Claim(
            "RandAugment against torchvision's v2.RandAugment on all cores",
            ours / theirs, f"{ours:,.0f} against {theirs:,.0f} images/s by {processes} processes",
            at_least=10.0,
        )
    )  # fmt: skip
    return claims


def _measure_finish(pixels: torch.Tensor, dtype: torch.dtype) -> Claim:
    flips = (torch.arange(_BATCH) % 2).to(torch.uint8)
    last = Finish("float", "divide", ((_MEAN, _STD),), dtype=dtype, channels_last=True)
    drawn = DrawnBatch(((Mirror(), {"flips": flips}), (last, {})), last)
    ours = _gpu_ms(lambda: drawn.run(pixels))
    moved = pixels.nbytes + drawn.run(pixels).nbytes
    source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = _gpu_ms(lambda: target.copy_(source))
    return Claim(
        f"flip + normalize + {_NAMES[dtype]}, channels-last, against a copy of as many bytes",
        ours / copy, f"{ours * 1e3:.0f} µs against {copy * 1e3:.0f} µs", at_most=1.5,
    )  # fmt: skip


def _gpu_ms(function: Callable[[], object]) -> float:
    """Milliseconds a call takes on the GPU, queued without a pause."""
    for _ in range(20):
        function()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(_REPEATS):
        function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / _REPEATS


def _rate(function: Callable[[torch.Tensor], Any], pixels: torch.Tensor) -> float:
    """Images per second, with all that the processor does for them."""
    for _ in range(20):
        function(pixels)
    torch.cuda.synchronize()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < _SECONDS:
        for _ in range(10):
            function(pixels)
        torch.cuda.synchronize()
        count += 10 * len(pixels)
    return count / (time.perf_counter() - began)


def _torchvision_rate(processes: int) -> float:
    """Images per second of them all together, each doing picture after picture."""
    context = multiprocessing.get_context("spawn")
    barrier, rates = context.Barrier(processes), context.SimpleQueue()
    workers = [context.Process(target=_change, args=(barrier, rates)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise RuntimeError("A process that measures torchvision failed.")
    return sum(rates.get() for _ in workers)


def _change(barrier: Barrier, rates: "SimpleQueue[float]") -> None:
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    change = v2.RandAugment()
    picture = torch.randint(0, 256, (3, _SIDE, _SIDE), dtype=torch.uint8)
    for _ in range(20):
        change(picture)
    barrier.wait(timeout=120)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < _SECONDS:
        change(picture)
        count += 1
    rates.put(count / (time.perf_counter() - began))


def main() -> None:
    """Print the table."""
    for claim in measure():
        print(claim.shown_value, claim.shown_target, claim.met, claim.what, "|", claim.numbers)


if __name__ == "__main__":
    main()
