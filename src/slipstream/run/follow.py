"""Follows a script while it runs: what `Trace` holds, at next to no cost once it has enough."""

import time
import weakref
from collections import Counter
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

from slipstream.by_hand import StepsByHand
from slipstream.doctor.record.places import called_by_user
from slipstream.launch import WindowEnded
from slipstream.loader.iterator import LoaderIterator
from slipstream.patches import Patches
from slipstream.run.check import Difference, Reference
from slipstream.run.seen import digest, kept, root_of, told
from slipstream.run.trace import Trace

BATCHES = 24
LOSSES = 256
_ACCUMULATED = 8  # backward passes before the first step of an optimizer: batches are counted
_BEFORE_STEP = 4  # times the window, for that step to come
_BEHIND_STEP = 8  # batches at least, to see what it did
_LOOKED_AT = 24  # losses of the real run
_OTHER_TRAINING = 64  # steps of another optimizer: the first one is not used any more
_MOST_ENDS = 4000


class Follower:
    """Hooks from `start` to `stop`. With `steps` or `seconds` it ends the script there.

    With `expected`, the first batches and losses are compared while the script runs; the first
    difference is told to `at_difference`, between two steps and with none of our hooks in place
    that fixes may lie below.
    """

    def __init__(
        self, *, steps: int | None = None, seconds: float | None = None,
        expected: Reference | None = None,
        at_difference: Callable[[Difference], None] = lambda difference: None,
    ) -> None:  # fmt: skip
        self.trace = Trace()
        self._expected, self._at_difference = expected, at_difference
        self._looked = 0
        self.steps = 0
        self.last_end = 0.0
        self._limit, self._seconds = steps, seconds
        self.has_ended = False  # the script, behind its window
        self._patches = Patches()
        self._handles: list[Any] = []
        self._losses: list[torch.Tensor] = []
        # Not held: workers of a loop that was left early end with its iterator.
        self._iterators: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._iterator_count = 0
        self._optimizer: weakref.ref[Any] | None = None
        self.signs = 0  # of training, in whatever thread
        self._steps_of_others: Counter[int] = Counter()  # since the last of that one
        self._has_optimizer = False
        self._backwards = 0
        self._at_first_backward = 0  # steps
        self._first_step_at: int | None = None  # where batches are counted
        self._is_inside = False
        self._by_hand = StepsByHand()

    def start(self) -> None:
        """Before the script."""
        self._patch()
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]

    def stop(self) -> Trace:
        """Behind it."""
        for handle in self._handles:
            handle.remove()
        self._patches.undo()
        self.trace.losses = [told(loss) for loss in self._losses]
        self.trace.on_device = any(loss.device.type != "cpu" for loss in self._losses)
        self._look(at_end=True)
        return self.trace

    @property
    def per_s(self) -> float | None:
        """Steps per second from the first to the last, all that lies between them included."""
        if self.steps < 2 or self.last_end <= self.trace.ends[0]:
            return None
        return (self.steps - 1) / (self.last_end - self.trace.ends[0])

    def _patch(self) -> None:
        for kind in (_BaseDataLoaderIter, LoaderIterator):
            self._patches.replace(kind, "__next__", self._wrap_next)
        self._patches.replace(torch.autograd, "backward", self._wrap_backward)
        self._patches.replace(torch.autograd, "grad", self._wrap_grad)
        self._patches.replace(torch.optim.Optimizer, "__init__", self._wrap_make_optimizer)

    def _wrap_next(self, original: Any) -> Any:
        def next_batch(iterator: Any) -> Any:
            if self._is_inside:
                return original(iterator)
            self._end_window()
            self._look()
            self._is_inside = True
            try:
                batch = original(iterator)
            finally:
                self._is_inside = False
            if len(self.trace.batches) < BATCHES:
                self.trace.batches.append((self._number(iterator), digest(batch)))
                self._look_at_batch()
            self._by_hand.saw_batch()
            self.signs += 1
            if self._optimizer is None:
                self._count()
            return batch

        return next_batch

    def _wrap_make_optimizer(self, original: Any) -> Any:
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            self._has_optimizer = True
            original(optimizer, *args, **kwargs)

        return init

    def _wrap_backward(self, original: Any) -> Any:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            self.signs += 1
            if self._by_hand.is_under_way:
                self._note_loss(tensors)
                original(tensors, *args, **kwargs)
                return
            if not self._iterator_count:
                self._look()
            if not self._backwards:
                self._at_first_backward = self.steps
            self._backwards += 1
            self._note_loss(tensors)
            with self._by_hand.backward() as is_by_hand:
                # A loader's batch may be gone through in parts, for a step that is to come.
                awaits = self._has_optimizer and self._iterator_count
                is_step = is_by_hand and self._optimizer is None and not awaits
                if is_step:
                    self._end_window()
                original(tensors, *args, **kwargs)
            if is_step:
                self._count()

        return backward

    def _wrap_grad(self, original: Any) -> Any:
        def grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if self._has_optimizer or not called_by_user():
                return original(outputs, *args, **kwargs)
            self.signs += 1
            with self._by_hand.grad() as is_step:
                if is_step:
                    self._look()
                    self._note_loss(outputs)
                    self._end_window()
                gradients = original(outputs, *args, **kwargs)
            if is_step:
                self._count()
            return gradients

        return grad

    def _note_loss(self, tensors: Any) -> None:
        if len(self._losses) < LOSSES:
            root = root_of(tensors)
            if root is not None:
                self._losses.append(kept(root))

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._end_window()

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.signs += 1
        # An optimizer may ask for many of the same batch.
        batches = self.steps - self._at_first_backward + 1
        if self._optimizer is None and min(self._backwards, batches) >= _ACCUMULATED:
            if self._first_step_at is None:
                self._first_step_at = self.steps
        elif self._optimizer is None:
            # What was counted so far were batches.
            self._optimizer = weakref.ref(optimizer)
            self.trace.ends.clear()
            self.trace.pages.clear()
            self.steps = 0
        elif self._optimizer() is not optimizer:
            self._steps_of_others[id(optimizer)] += 1
            is_alone = self._steps_of_others[id(optimizer)] > _OTHER_TRAINING
            if self._optimizer() is None or is_alone:
                self._optimizer = weakref.ref(optimizer)
        if self._optimizer is not None and self._optimizer() is optimizer:
            self._steps_of_others.clear()
            self._count()

    def _count(self) -> None:
        self.steps += 1
        self.last_end = time.perf_counter()
        if len(self.trace.ends) < _MOST_ENDS:
            self.trace.ends.append(self.last_end)
            self.trace.pages.append(getrusage(RUSAGE_SELF).ru_minflt)

    def _end_window(self) -> None:
        if self._is_enough():
            self.has_ended = True
            raise WindowEnded

    def _is_enough(self) -> bool:
        times = _BEFORE_STEP if self._awaits_step() else 1
        if self._limit is not None and self.steps >= times * self._limit:
            return True
        if self._seconds is None or not self.trace.ends:
            return False
        # A few steps at least: fewer tell nothing.
        long_enough = time.perf_counter() - self.trace.ends[0] >= times * self._seconds
        return long_enough and self.steps >= 8

    def _awaits_step(self) -> bool:
        """Whether gradients are summed up for a step that is still to come, or has just come."""
        if self._optimizer is not None or not (self._has_optimizer and self._backwards):
            return False
        return self._first_step_at is None or self.steps < self._first_step_at + _BEHIND_STEP

    def _look_at_batch(self) -> None:
        if self._expected is not None:
            at = len(self.trace.batches) - 1
            self._tell(self._expected.batch_fault(at, self.trace.batches[at]))

    def _look(self, *, at_end: bool = False) -> None:
        """At the losses since the last time; at those of a device once, as it has to be waited
        for.
        """
        if self._expected is None or self._looked >= _LOOKED_AT:
            return
        found = self._losses[:_LOOKED_AT]
        on_device = bool(found) and found[0].device.type != "cpu"
        if on_device and len(found) < _LOOKED_AT and not at_end:
            return
        for at in range(self._looked, len(found)):
            self._looked = at + 1
            fault = self._expected.loss_fault(at, told(found[at]))
            if fault is not None:
                self._tell(fault, at_end=at_end)
                return

    def _tell(self, fault: Difference | None, *, at_end: bool = False) -> None:
        if fault is None:
            return
        self._expected = None
        self._patches.undo()
        self._at_difference(fault)
        if not at_end:
            self._patch()

    def _number(self, iterator: Any) -> int:
        """Of an iterator, in the order in which they were first asked."""
        if iterator not in self._iterators:
            self._iterators[iterator] = self._iterator_count
            self._iterator_count += 1
        return self._iterators[iterator]
