"""A step that is looked at while it trains: every so often its gradients are compared anew."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from slipstream.errors import UsageError
from slipstream.infer.keeping import everything_as_before
from slipstream.rng import rng_as_before
from slipstream.train.choices import Choices, Way
from slipstream.train.equivalence import equivalence
from slipstream.train.judge import first_line
from slipstream.train.reference import reference_of
from slipstream.train.snapshot import Snapshot
from slipstream.train.step import TrainStep
from slipstream.train.subject import Subject

_log = logging.getLogger("slipstream.train")


class Canary:
    """Calls a step, and before every `every`-th call compares its loss, gradients and update, for
    the batch and the parameters at hand, with those of double precision, as `tune_step` does. If
    they are wrong, it warns, says so in `failed`, and goes on with a step that has neither fewer
    bits, nor compiled code, nor channels-last, nor another update than a loop; clipping,
    micro-batches and the average stay.

    >>> import slipstream, torch
    >>> from slipstream.train.canary import Canary
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def loss_fn(model, batch):
    ...     return (model(batch[0]) - batch[1]).square().mean()
    >>> step = Canary(slipstream.TrainStep(model, optimizer, loss_fn, update="fused"), every=2)
    >>> for _ in range(4):
    ...     loss = step((torch.ones(8, 4), torch.ones(8, 1)))
    >>> step.looks, step.failed
    (2, None)

    A look takes about as long as ten steps, and the memory of some more models. The training
    itself does not change by it: parameters, buffers, the optimizer, the scaler and random numbers
    are as they were. Compiled code that draws random numbers draws others than torch, and is not
    compared; the log `slipstream.train` says so.
    """

    def __init__(self, step: TrainStep, *, every: int = 1000) -> None:
        if every < 1:
            raise UsageError(f"every is {every}; expected a number of steps, 1 or more.")
        self.step, self.every = step, every
        self.calls = self.looks = 0
        self.failed: str | None = None

    def __call__(self, batch: Any) -> torch.Tensor:
        """Train once, and give the loss."""
        self.calls += 1
        if self.failed is None and self.calls % self.every == 0:
            self.looks += 1
            self.failed = self._look(batch)
            if self.failed is not None:
                self._go_back()
        return self.step(batch)

    def _look(self, batch: Any) -> str | None:
        """What is wrong. That there is nothing to compare with is no reason to stop."""
        step = self.step
        plain = replace(_plain(step.choices), ema=None)
        subject = Subject(step.model, step.optimizer, step.loss_fn, (batch,), plain)
        with everything_as_before(step.model), rng_as_before(), _without_hooks(step.optimizer):
            before = Snapshot(step)
            try:
                reference = reference_of(subject)
            except Exception as error:
                _log.warning("there is nothing to compare the step with: %s", error)
                return None
            if reference.draws and step.choices.compile:
                _log.warning("the step is not compared: compiled code draws its own random numbers")
                return None
            try:
                return equivalence(step, reference, jumps=True)[0]
            except Exception as error:
                return first_line(error)
            finally:
                before.restore()

    def _go_back(self) -> None:
        step = self.step
        warnings.warn(
            f"Step {self.calls}: {step.choices.name} is not the same step any more "
            f"({self.failed}). Training goes on as written.",
            RuntimeWarning,
            stacklevel=3,
        )
        if step.choices.channels_last:
            step.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        plain = TrainStep(
            step.model, step.optimizer, step.loss_fn, **_plain(step.choices).as_dict()
        )
        plain.load_state_dict({**step.state_dict(), "scaler": None})
        self.step = plain


@contextmanager
def _without_hooks(optimizer: Any) -> Iterator[None]:
    """Those of the caller count steps that are made."""
    names = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    own = {name: getattr(optimizer, name) for name in names}
    for name, hooks in own.items():
        setattr(optimizer, name, type(hooks)())
    try:
        yield
    finally:
        for name, hooks in own.items():
            setattr(optimizer, name, hooks)


def _plain(choices: Choices) -> Choices:
    update: Way | None = None if choices.update is None else "loop"
    return replace(
        choices, precision=None, compile=False, channels_last=False, cudnn_benchmark=False,
        own_kernels=False, update=update,
    )  # fmt: skip
