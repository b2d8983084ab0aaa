"""Chooses, while training, which part of every batch the GPU decodes."""

import time
from dataclasses import dataclass

from slipstream.loader.choice import Choice

_WINDOW = 30  # batches, and at least
_WINDOW_S = 1.0
_SKIP = 20  # batches after a change: made before it, or run while the GPU's queue fills
_SKIP_FIRST = 3  # batches of an epoch: they wait for the first to be made
_TOLERATED_WAIT = 0.02
_ALIKE = 0.98  # of the highest rate
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
            self._say("to begin with; measured in training")
        self._skip = _SKIP
        self._reset()
        self.begin()

    def is_of(self, choice: Choice) -> bool:
        """Whether it was measured for this way of making batches."""
        return self._choice is choice

    def begin(self) -> None:
        """An epoch begins: what was made ahead is gone, what was measured is not."""
        self._skip = max(self._skip, _SKIP_FIRST)
        self._last: float | None = None

    def _reset(self) -> None:
        self._batches = 0
        self._elapsed_s = 0.0
        self._wait_s = 0.0

    def observe(self, wait_s: float) -> None:
        """The loop got a batch for which it had waited so long."""
        if self._settled:
            return
        now = time.perf_counter()
        last, self._last = self._last, now
        if self._skip:
            self._skip -= 1
            return
        if last is None:
            return
        self._batches += 1
        self._elapsed_s += now - last
        self._wait_s += wait_s
        if self._batches >= _WINDOW and self._elapsed_s >= _WINDOW_S:
            self._note()
            self._reset()
            self._go_on()

    def _note(self) -> None:
        rate, waits = self._batches / self._elapsed_s, self._wait_s / self._elapsed_s
        self._measured.append(_Measured(self.share, rate, waits))
        self._choice.history.append(
            f"decoding {_describe(self.share)}: {rate:.1f} batches/s, the loop waits {waits:.0%} of"
            " the time"
        )

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
            # What the GPU does not decode it can train.
            highest = max(measured.rate for measured in self._measured)
            alike = [m for m in self._measured if m.rate >= _ALIKE * highest]
            rates = ", ".join(f"{m.rate:.1f} {_describe(m.share)}" for m in self._measured)
            self._settle(min(alike, key=lambda m: m.share), f"batches/s: {rates}")

    @staticmethod
    def _shared(alone: _Measured, gpu: _Measured) -> float:
        """The GPU's share when the processor does all it can; 0 if that is next to nothing."""
        share = 1 - _MARGIN * alone.rate / max(alone.rate, gpu.rate)
        return round(share, 2) if share < 0.95 else 0.0

    def _try(self, share: float) -> None:
        self.share = share
        self._skip = _SKIP
        self._say("being measured")

    def _settle(self, best: _Measured, why: str) -> None:
        self.share = best.share
        self._settled = True
        self._say(why)

    def _say(self, why: str) -> None:
        self._choice.decode, self._choice.decode_why = _describe(self.share), why


def _describe(share: float) -> str:
    if share in (0.0, 1.0):
        return "on the GPU" if share else "on the processor"
    return f"{share:.0%} on the GPU"
