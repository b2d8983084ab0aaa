"""`tune_step`: the switches that make a training step faster and leave it the same."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn

from slipstream.errors import UsageError
from slipstream.infer.keeping import everything_as_before
from slipstream.infer.leaves import tensors_of
from slipstream.rng import rng_as_before
from slipstream.train.choices import Choices
from slipstream.train.given import expect_parts
from slipstream.train.judge import first_line
from slipstream.train.parts import expect_cuttable
from slipstream.train.recipe import Recipe
from slipstream.train.search import Search
from slipstream.train.step import LossFn
from slipstream.train.subject import Subject
from slipstream.train.switches import KINDS, SWITCHES, Kind
from slipstream.train.trial import Trial

_MOST_BATCHES = 64


def tune_step(  # noqa: PLR0913  four of them say what is tuned
    model: nn.Module, loss_fn: LossFn, optimizer: torch.optim.Optimizer, batches: Iterable[Any], *,
    accuracy: Kind = "exact", micro_batch: int | Literal["auto"] | None = None,
    clip_norm: float | None = None, only: Sequence[str] | None = None, budget_s: float = 180.0,
) -> Recipe:  # fmt: skip
    """Find what makes a training step faster and leaves it the same.

    Switches are tried one after another: a fused optimizer, gradients that are zeroed in place,
    channels-last, cuDNN's own measurements, fewer bits, `torch.compile`. Each stays only if it is
    surely faster, measured in turns with the step as it is, and if loss, gradients and updates are
    right, beside those of double precision. What is found then trains for some dozen steps, beside
    the step as written. Nothing of the caller's changes: trials work on copies.

    `loss_fn(model, batch)` gives a scalar; it has to use the model that it is given, and to keep
    nothing. `batches`: about eight to thirty of the real ones. `accuracy`: "exact" admits the same
    mathematics, "mixed" also bf16, fp16 and TF32. `clip_norm` and `micro_batch` belong to the step
    as written; `micro_batch="auto"` looks for the size at the knee of samples per second. `only`:
    names of switches. `budget_s` is for all of it; a candidate that hangs is ended, in the main
    thread. Names of candidates go to the log `slipstream.train` as they are tried.

    >>> import slipstream, torch
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def loss_fn(model, batch):
    ...     return (model(batch[0]) - batch[1]).square().mean()
    >>> batches = [(torch.ones(8, 4), torch.ones(8, 1))] * 8
    >>> recipe = slipstream.tune_step(model, loss_fn, optimizer, batches, budget_s=0)
    >>> recipe.name
    'as written'
    >>> step = recipe.apply(model, optimizer, loss_fn)
    >>> step(batches[0]).shape
    torch.Size([])
    """
    expect_parts(model, optimizer, loss_fn)
    with rng_as_before():
        given = _listed(batches)  # a loader draws
    _check(model, optimizer, given, accuracy, only, budget_s)
    as_written = None if micro_batch == "auto" else micro_batch
    written = Choices(micro_batch=as_written, clip_norm=clip_norm)
    subject = Subject(model, optimizer, loss_fn, given, written)
    if micro_batch is not None:
        for batch in given:
            expect_cuttable(batch)
    with everything_as_before(model), rng_as_before(), _with_gradients():
        search = Search(subject, _first(subject), budget_s, accuracy)
        return search.run(only, sizes=micro_batch == "auto")


def _listed(batches: Any) -> tuple[Any, ...]:
    try:
        return tuple(itertools.islice(iter(batches), _MOST_BATCHES))
    except TypeError:
        name = type(batches).__name__
        raise UsageError(f"batches is a {name}; expected a list or a loader of them.") from None


@contextmanager
def _with_gradients() -> Iterator[None]:
    with torch.inference_mode(False), torch.enable_grad():
        yield


def _first(subject: Subject) -> Trial:
    """The step as written, which has to work."""
    own = list(subject.model.parameters())
    before = [parameter.grad for parameter in own]
    for parameter in own:
        parameter.grad = None  # else autograd adds to it, and nothing shows that
    buffers = [(each, each.detach().clone()) for each in subject.model.buffers()
               if not isinstance(each, nn.parameter.UninitializedBuffer)]  # fmt: skip
    given = [tensor.detach().clone() for tensor in tensors_of(subject.usual[0])]
    try:
        trial = Trial(subject, subject.written)
        loss = float(trial.step(subject.usual[0]))
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"The step as written fails: {first_line(error)}") from error
    finally:
        is_touched = any(one.grad is not None for one in own)
        for one, grad in zip(own, before, strict=True):
            one.grad = grad
        with torch.no_grad():
            for buffer, kept in buffers:
                buffer.copy_(kept)
    if is_touched:
        raise UsageError(
            "loss_fn computes with the caller's model, not with the one that it is given. Write it "
            "as loss_fn(model, batch), with model(…) inside."
        )
    if all(parameter.grad is None for parameter in trial.step.parameters):
        raise UsageError("loss_fn leaves no gradient in any parameter of the optimizer.")
    if not all(map(_are_same, given, tensors_of(subject.usual[0]))):
        raise UsageError("loss_fn changes its batch. Make a copy inside, as in x = x / 255.")
    if not math.isfinite(loss):
        raise UsageError(f"The loss of the step as written is {loss}; expected a number.")
    trial.start.restore()
    return trial


def _are_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_floating_point():
        one, other = one.nan_to_num(), other.nan_to_num()
    return torch.equal(one, other)


def _check(
    model: Any, optimizer: Any, batches: tuple[Any, ...], accuracy: Any,
    only: Sequence[str] | None, budget_s: Any,
) -> None:  # fmt: skip
    if not batches:
        raise UsageError("There are no batches; expected about eight to thirty real ones.")
    if accuracy not in KINDS:
        listed = ", ".join(map(repr, KINDS))
        raise UsageError(f"accuracy is {accuracy!r}; expected one of {listed}.")
    if not isinstance(budget_s, (int, float)) or budget_s < 0:
        raise UsageError(f"budget_s is {budget_s!r}; expected seconds, 0 or more.")
    names = [switch.name for switch in SWITCHES]
    if unknown := [name for name in only or () if name not in names]:
        raise UsageError(f"only has {unknown}; expected some of {names}.")
    own = set(map(id, model.parameters()))
    held = [one for group in optimizer.param_groups for one in group["params"]]
    if not held or not own:
        raise UsageError("There is nothing to train: no parameters in the model or the optimizer.")
    if others := sum(id(one) not in own for one in held):
        raise UsageError(
            f"{others} of {len(held)} parameters of the optimizer are not the model's, and would "
            "not be copied with it. Put all that learns into one module."
        )
    if torch.is_autocast_enabled(held[0].device.type):
        raise UsageError("Call tune_step outside of torch.autocast: precision is a switch of its.")
