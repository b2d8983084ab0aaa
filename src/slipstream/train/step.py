"""`TrainStep`: one training step in one readable call."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.train.average import Average
from slipstream.train.choices import Choices, Precision, Way
from slipstream.train.compiled import CompiledModel
from slipstream.train.flags import flags_of
from slipstream.train.given import expect_parts
from slipstream.train.layout import lay_channels_last, lay_like_parameters, with_channels_last
from slipstream.train.parts import cut, expect_cuttable
from slipstream.train.ways import expect_way, update_by

LossFn = Callable[[Any, Any], Any]  # of a model and a batch: a scalar tensor


class TrainStep:
    """A training step: `step(batch)` trains once on a batch and gives its loss.

    Zeroes gradients, computes the loss, goes back, clips, updates and averages, in this order.
    `loss_fn(model, batch)` computes a scalar from the model that it is given, which need not be the
    very object; with `micro_batch` the scalar has to be a mean over samples.

    >>> import slipstream, torch
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def loss_fn(model, batch):
    ...     return (model(batch["x"]) - batch["y"]).square().mean()
    >>> step = slipstream.TrainStep(model, optimizer, loss_fn, micro_batch=2, clip_norm=1.0)
    >>> loss = step({"x": torch.ones(5, 4), "y": torch.ones(5, 1)})
    >>> loss.shape, loss.requires_grad
    (torch.Size([]), False)

    `precision`: "bf16" or "fp16" compute the loss under autocast, the latter with a scaled loss
    whose overflows skip the update (`skipped` counts them); "tf32" is for matrix products on a
    GPU. `compile`: True, or a mode of `torch.compile`. `channels_last`: convolutions and pictures
    in that order. `update`: "fused", "foreach" or "loop". `cudnn_benchmark`: measured algorithms.
    `own_kernels`: torch's own ones on a processor where they are faster than those of oneDNN.
    `micro_batch`: samples that go through the model at once; their gradients add up to the one of
    the whole batch, a smaller last part included. `clip_norm`: of all gradients together, after
    they are unscaled; the norm before is `grad_norm`. `ema`: decay of `average`, a copy of the
    model that follows it. `set_to_none`: gradients are released, not zeroed.

    The model's layout and the optimizer's way are changed here, in place and for good; torch's
    flags only while a step runs. Nothing waits for the device. `state_dict` has the scaler and the
    average; model and optimizer are the caller's to save.
    """

    def __init__(  # noqa: PLR0913  one flat option for each thing that a step can do
        self, model: nn.Module, optimizer: torch.optim.Optimizer, loss_fn: LossFn, *,
        precision: Precision | None = None, compile: bool | str = False,
        channels_last: bool = False, update: Way | None = None, cudnn_benchmark: bool = False,
        own_kernels: bool = False,
        micro_batch: int | None = None, clip_norm: float | None = None, ema: float | None = None,
        set_to_none: bool = True,
    ) -> None:  # fmt: skip
        self.choices = Choices(
            update, set_to_none, channels_last, cudnn_benchmark, own_kernels, precision, compile,
            micro_batch, clip_norm, ema,
        )  # fmt: skip
        expect_parts(model, optimizer, loss_fn)
        if update is not None:
            expect_way(optimizer, update)
        self.model, self.optimizer, self.loss_fn = model, optimizer, loss_fn
        if not self.parameters:
            raise UsageError("The optimizer has no parameters; expected those of the model.")
        self.device = self.parameters[0].device
        if channels_last:
            lay_channels_last(model, optimizer)
        else:
            lay_like_parameters(optimizer)
        if update is not None:
            update_by(optimizer, update)
        mode = compile if isinstance(compile, str) else None
        self._called = CompiledModel(model, mode) if compile else model
        if precision == "fp16" and not hasattr(optimizer, "_optimizer_step_post_hooks"):
            raise UsageError(
                f"optimizer is a {type(optimizer).__name__} without the hooks of torch's, which "
                "tell a skipped update; call super().__init__ in it, or give precision='bf16'."
            )
        self.scaler = torch.amp.GradScaler(self.device.type) if precision == "fp16" else None
        self._average = Average(model, ema) if ema is not None else None
        self.grad_norm: torch.Tensor | None = None
        self._overflows: torch.Tensor | int = 0

    def __call__(self, batch: Any) -> torch.Tensor:
        """Train once; the loss is that of the whole batch, before the update, and has no graph."""
        loss = self.backward(batch)
        self.update()
        return loss

    def backward(self, batch: Any) -> torch.Tensor:
        """The first half: the loss, with the gradients of it in the parameters. With "fp16" they
        are still scaled.
        """
        self.optimizer.zero_grad(set_to_none=self.choices.set_to_none)
        if not self.choices.set_to_none:
            for parameter in self.parameters:
                if not parameter.requires_grad:  # momentum would go on with its zeros
                    parameter.grad = None
        with flags_of(self.choices):
            total: Any = 0.0
            for part, share in self._parts(batch):
                loss = self._loss(part)
                if share != 1:
                    loss = loss * share
                (loss if self.scaler is None else self.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]
                total = total + loss.detach()
        found: torch.Tensor = total
        return found

    def update(self) -> None:
        """The second half: gradients are unscaled and clipped, parameters updated and averaged."""
        if self.choices.clip_norm is not None:
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            self.grad_norm = nn.utils.clip_grad_norm_(self.parameters, self.choices.clip_norm)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self._step_scaled(self.scaler)
        if self._average is not None:
            self._average.update()

    @property
    def parameters(self) -> list[torch.Tensor]:
        """Those that the optimizer has now: groups may be added later."""
        return [one for group in self.optimizer.param_groups for one in group["params"]]

    @property
    def average(self) -> nn.Module:
        """The copy that follows the model. Raises `UsageError` for a step without `ema`."""
        if self._average is None:
            raise UsageError("This step keeps no average. Give TrainStep(…, ema=0.999).")
        return self._average.model

    @property
    def skipped(self) -> int:
        """Updates that were left out so far, as gradients had overflown. Waits for the device."""
        return int(self._overflows)

    def state_dict(self) -> dict[str, Any]:
        """Scaler, average and what was skipped."""
        return {
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "average": None if self._average is None else self._average.state_dict(),
            "skipped": self.skipped,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there. Raises `UsageError` where one has a scaler or an average and the other
        has not.
        """
        for name, own in (("scaler", self.scaler), ("average", self._average)):
            if (own is None) != (state[name] is None):
                saved, this = ("no", "one") if state[name] is None else ("a", "none")
                raise UsageError(
                    f"The saved step had {saved} {name}, this one has {this}. Make it with the "
                    "precision and ema of the saved one."
                )
            if own is not None:
                own.load_state_dict(state[name])
        self._overflows = int(state["skipped"])

    def _parts(self, batch: Any) -> list[tuple[Any, float]]:
        """Parts of a batch, each with its share of the samples."""
        if self.choices.channels_last:
            batch = with_channels_last(batch)
        most = self.choices.micro_batch
        if most is None:
            return [(batch, 1)]
        size = expect_cuttable(batch)
        starts = range(0, size, most)
        ends = [min(start + most, size) for start in starts]
        return [
            (cut(batch, start, end, size), (end - start) / size)
            for start, end in zip(starts, ends, strict=True)
        ]

    def _loss(self, part: Any) -> torch.Tensor:
        with self._autocast():
            loss: Any = self.loss_fn(self._called, part)
        if not isinstance(loss, torch.Tensor) or loss.dim():
            got = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise UsageError(
                f"loss_fn gave {got}; expected a scalar tensor, such as "
                "cross_entropy(model(x), y) with its mean."
            )
        found: torch.Tensor = loss.float() if self.choices.autocast else loss
        return found

    def _autocast(self) -> AbstractContextManager[Any]:
        name = self.choices.autocast
        if name is None:
            return nullcontext()
        return torch.autocast(self.device.type, getattr(torch, name))

    def _step_scaled(self, scaler: torch.amp.GradScaler) -> None:
        """Update unless a gradient has overflown, and count that without waiting."""
        overflows: list[torch.Tensor | int] = [1]  # the optimizer is not called at all

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            found = getattr(optimizer, "found_inf", None)  # one that unscales by itself
            overflows[0] = 0 if found is None else (found > 0).int()

        handle = self.optimizer.register_step_post_hook(after)
        try:
            scaler.step(self.optimizer)
        finally:
            handle.remove()
        scaler.update()
        self._overflows = self._overflows + overflows[0]
