"""Chooses, while training, which part of every batch the GPU decodes."""

import time
from dataclasses import dataclass

from slipstream.loader.choice import Choice

_WINDOW = 30  # batches, and at least
_WINDOW_S = 1.0
_SKIP = 20  # batches after a change: made before it, or run while the GPU's queue fills
_TOLERATED_WAIT = 0.02
_CLEARLY = 1.02  # a rate that is so many times another is higher
_MARGIN = 0.6  # of what the processor can alone: training needs some of it


@dataclass(frozen=True)
class _Measured:
    share: float
    rate: float  # batches per second
    waits: float  # part of the time that the loop waited


class Balance:
    """`share` is the part of a batch that the GPU decodes, from 0 to 1.

    Pixels are the same whoever decodes them, so it may change at any time. First the processor
    decodes alone. If the loop waits for it, the GPU is tried alone, then with as much help as the
    processor can give; the highest rate of training wins, the smaller share where two are alike.
    """

    def __init__(self, choice: Choice, *, share: float | None = None) -> None:
        """With `share` nothing is measured."""
        self._choice = choice
        self._measured: list[_Measured] = []
        self._settled = share is not None
        self.share = 0.0 if share is None else share
        if share is None:
            choice.decode, choice.decode_why = _describe(0.0), "to begin with; measured in training"
        self.begin()

    def is_of(self, choice: Choice) -> bool:
        """Whether it was measured for this way of making batches."""
        return self._choice is choice

    def begin(self) -> None:
        """An epoch begins: what was made ahead is gone."""
        self._skip = _SKIP
        self._reset()

    def _reset(self) -> None:
        self._began = time.perf_counter()
        self._batches = 0
        self._wait_s = 0.0

    def observe(self, wait_s: float) -> None:
        """The loop got a batch for which it had waited so long."""
        if self._settled:
            return
        if self._skip:
            self._skip -= 1
            self._reset()
            return
        self._batches += 1
        self._wait_s += wait_s
        elapsed = time.perf_counter() - self._began
        if self._batches >= _WINDOW and elapsed >= _WINDOW_S:
            measured = _Measured(self.share, self._batches / elapsed, self._wait_s / elapsed)
            self._measured.append(measured)
            self._choice.history.append(
                f"decoding {_describe(self.share)}: {measured.rate:.1f} batches/s, the loop waits"
                f" {measured.waits:.0%} of the time"
            )
            self._go_on()

    def _go_on(self) -> None:
        alone = self._measured[0]
        if len(self._measured) == 1:
            if alone.waits <= _TOLERATED_WAIT:
                self._settle(alone, "the processor keeps up, the GPU is left to training")
            else:
                self._try(1.0)
        elif len(self._measured) == 2 and (share := self._shared(alone, self._measured[1])):
            self._try(share)
        else:
            # Ties go to the smaller share: what the GPU does not decode it can train.
            best = sorted(self._measured, key=lambda m: m.share)[0]
            for other in sorted(self._measured, key=lambda m: m.share)[1:]:
                if other.rate > _CLEARLY * best.rate:
                    best = other
            rates = ", ".join(f"{m.rate:.1f} {_describe(m.share)}" for m in self._measured)
            self._settle(best, f"batches/s: {rates}")

    @staticmethod
    def _shared(alone: _Measured, gpu: _Measured) -> float:
        """The GPU's share when the processor does all it can; 0 if that is next to nothing."""
        share = 1 - _MARGIN * alone.rate / max(alone.rate, gpu.rate)
        return round(share, 2) if share < 0.95 else 0.0

    def _try(self, share: float) -> None:
        self.share = share
        self.begin()

    def _settle(self, best: _Measured, why: str) -> None:
        self.share = best.share
        self._settled = True
        self._choice.decode, self._choice.decode_why = _describe(best.share), why


def _describe(share: float) -> str:
    if share in (0.0, 1.0):
        return "on the GPU" if share else "on the processor"
    return f"{share:.0%} on the GPU"
