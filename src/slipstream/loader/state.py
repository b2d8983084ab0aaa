"""Where in which epoch a training loop is."""

from collections.abc import Iterator
from typing import Any

import torch

from slipstream.errors import UsageError

VERSION = 1
_MOST_EPOCHS = 1 << 63
_END = object()


class Position:
    """The place of the loop, and of the next iteration.

    `next_epoch` and `resume_at` say where the next iteration begins; while one runs,
    `running_epoch` and `at` say what the loop has had. An iteration begins with its first batch,
    not with `iter()`: frameworks choose the epoch in between.
    """

    def __init__(self, next_epoch: int = 0, resume_at: int = 0) -> None:
        self.next_epoch = next_epoch
        self.resume_at = resume_at
        self.running_epoch = 0
        self.start = 0
        self.at = 0
        self.run = 0
        self.is_running = False
        # Batches that came before their turn: where they begin and end.
        self._early: dict[int, int] = {}
        # State of the sampler's generator before the iteration, where there is one.
        self.generator: bytes | None = None
        self._restores_generator = False
        # The global generator's state when a sampler without one of its own drew its order.
        self.draw: bytes | None = None
        self._replays: bytes | None = None

    def set_epoch(self, epoch: int) -> None:
        """Begin with this epoch next; if it is the one to be resumed, where it was left."""
        if type(epoch) is not int or not 0 <= epoch < _MOST_EPOCHS:
            raise UsageError(f"epoch is {epoch!r}, expected an integer from 0.")
        if epoch != self.next_epoch:
            self.next_epoch, self.resume_at = epoch, 0
        if epoch != self.running_epoch:
            # An iteration that was left before its end is not to be resumed.
            self.is_running = False

    def follow(self, epoch: int) -> None:
        """Your sampler was told of this epoch. It may be further than we know: a framework that has
        loaded our state after an epoch's last batch goes on with the next.
        """
        if epoch > self.next_epoch:
            self.set_epoch(epoch)

    def restore(self, generator: bytes) -> None:
        """Have the next iteration draw its order from this state of its generator."""
        self.generator = generator
        self._restores_generator = True

    def rewind(self, generator: torch.Generator | None) -> bytes | None:
        """Give the generator the state to be restored, if there is one. Returns the state that the
        iteration about to begin draws its order from.
        """
        if generator is None:
            return None
        if self._restores_generator and self.generator is not None:
            generator.set_state(torch.frombuffer(bytearray(self.generator), dtype=torch.uint8))
        state = bytes(generator.get_state().numpy())
        if not self.is_running:
            self.generator = state
        return state

    def watch(self, sampled: Iterator[Any]) -> Iterator[Any]:
        """`sampled`, noting what its first draw takes from torch's global generator, as samplers
        without one of their own do. After `restore_draw` the first draw is that one again; the
        global generator itself stays what it is.
        """
        before = torch.get_rng_state()
        replayed, self._replays = self._replays, None
        if replayed == bytes(before.numpy()):
            replayed = None  # you have restored it, and go on from there
        if replayed is not None:
            torch.set_rng_state(torch.frombuffer(bytearray(replayed), dtype=torch.uint8))
        try:
            first = next(sampled, _END)
            drew = not torch.equal(torch.get_rng_state(), before)
        finally:
            if replayed is not None:
                torch.set_rng_state(before)
        self.draw = replayed or (bytes(before.numpy()) if drew else None)
        if first is not _END:
            yield first
            yield from sampled

    def restore_draw(self, state: bytes) -> None:
        """Have the next sampler's first draw come from this state of the global generator."""
        self.draw = self._replays = state

    def begin(self, generator: bytes | None = None) -> int:
        """Begin an iteration; returns its number. Earlier ones no longer count. `generator` is what
        `rewind` gave.
        """
        self.generator, self._restores_generator = generator, False
        self.draw = self._replays
        self._early.clear()
        self.running_epoch, self.start = self.next_epoch, self.resume_at
        self.at = self.start
        self.next_epoch, self.resume_at = self.next_epoch + 1, 0
        self.is_running = True
        self.run += 1
        return self.run

    def deliver(self, run: int, before: int, after: int) -> None:
        """The loop was given the batch between these positions. What comes before its turn counts
        when all before it have come: after resuming it comes again, but nothing is missed.
        """
        if run == self.run:
            self._early[before] = after
            while self.at in self._early:
                self.at = self._early.pop(self.at)

    def finish(self, run: int) -> None:
        """The iteration came to its end."""
        if run == self.run:
            self.is_running = False
            self.generator = None

    def to_json(self) -> dict[str, Any]:
        """As plain values.

        >>> Position().to_json()
        {'version': 1, 'epoch': 0, 'position': 0}
        """
        epoch, position = self.next_epoch, self.resume_at
        if self.is_running:
            epoch, position = self.running_epoch, self.at
        return {"version": VERSION, "epoch": epoch, "position": position}

    @classmethod
    def from_json(cls, state: Any) -> "Position":
        """Of `to_json`. Raises `UsageError`."""
        if not isinstance(state, dict) or state.get("version") != VERSION:
            got = state.get("version") if isinstance(state, dict) else type(state).__name__
            raise UsageError(f"This is no state of a Loader: version {got!r}, expected {VERSION}.")
        numbers = [state.get(name) for name in ("epoch", "position")]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise UsageError(
                f"This state of a Loader is damaged: epoch and position are {numbers}."
            )
        return cls(*numbers)  # type: ignore[arg-type]
