"""A student that learns from a teacher: from its answers, and from what it computes on the way."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from slipstream.errors import UsageError
from slipstream.infer.inputs import inputs_of
from slipstream.infer.keeping import modes_as_before
from slipstream.rng import rng_as_before, seed_torch

Batch = tuple[Any, Any]


def distill(
    student: nn.Module, teacher: nn.Module, batches: Iterable[Batch],
    loss_fn: Callable[[Any, Any], torch.Tensor], *, optimizer: torch.optim.Optimizer | None = None,
    temperature: float = 4.0, logits: float = 1.0, features: Mapping[str, str] | None = None,
) -> list[float]:  # fmt: skip
    """Train the student in place, and return its losses, one for each batch.

    A batch is `(inputs, targets)`; `loss_fn(outputs, targets)` is the loss of the task. Added to it
    are, `logits` times, the divergence of the student's answers from the teacher's, both softened
    by `temperature`, and for each pair of layers in `features`, {student's name: teacher's name},
    how far their results are apart. Where these have other widths, a linear map is learnt along
    with the student, and left behind. `logits=0` is for models that do not answer with one tensor.

    The optimizer is Adam if none is given. The teacher stays as it is: it answers in evaluation,
    and has no gradients. For several epochs, give the batches several times.

    >>> batches = [(torch.randn(8, 4), torch.randint(0, 2, (8,)))]
    >>> student, teacher = nn.Linear(4, 2), nn.Linear(4, 2)
    >>> epochs = (batch for _ in range(3) for batch in batches)
    >>> len(distill(student, teacher, epochs, functional.cross_entropy))
    3
    """
    pairs = dict(features or {})
    _check(student, teacher, temperature)
    optimizers = [optimizer or torch.optim.Adam(student.parameters())]
    maps: nn.ModuleList | None = None
    losses: list[float] = []
    with (
        _in_evaluation(teacher),
        _results_of(student, list(pairs)) as own,
        _results_of(teacher, list(pairs.values())) as shown,
    ):
        for inputs, targets in batches:
            own.clear()
            shown.clear()
            with torch.no_grad():
                right = inputs_of(inputs)(teacher)
            answers = inputs_of(inputs)(student)
            _expect_called(student, pairs, own)
            _expect_called(teacher, pairs.values(), shown)
            if maps is None:
                maps = _maps_between(pairs, own, shown)
                optimizers += [torch.optim.Adam(each.parameters()) for each in _learning(maps)]
            loss = loss_fn(answers, targets)
            if logits:
                loss = loss + logits * divergence(answers, right, temperature)
            for (name, other), mapped in zip(pairs.items(), maps, strict=True):
                loss = loss + apart(mapped(own[name]), shown[other])
            _step(loss, optimizers)
            losses.append(float(loss.detach()))
    if not losses:
        raise UsageError("There are no batches, so nothing was learnt; expected (inputs, targets).")
    return losses


def divergence(answers: Any, right: Any, temperature: float) -> torch.Tensor:
    """Of softened answers, per answer, times the square of the temperature: its gradients are then
    of the size of those of the task. Classes are the last dimension; of maps with a height and a
    width, the second.
    """
    for one in (answers, right):
        if not isinstance(one, torch.Tensor):
            raise UsageError(
                f"A model answers with a {type(one).__name__}; logits are compared as one tensor. "
                "Wrap the model so that it gives them, or pass logits=0."
            )
    classes = 1 if answers.dim() >= 4 else -1
    soft = functional.log_softmax(answers / temperature, classes)
    target = functional.log_softmax(right / temperature, classes)
    each = functional.kl_div(soft, target, reduction="none", log_target=True).sum(classes)
    return each.mean() * temperature**2


def apart(own: torch.Tensor, shown: torch.Tensor) -> torch.Tensor:
    """The mean squared difference, as a share of the mean square of what is shown."""
    return (own - shown).square().mean() / shown.square().mean().clamp(min=1e-12)


class _Map(nn.Module):
    """A linear map along one dimension. Its first weights are always the same, and the caller's
    random numbers stay.
    """

    def __init__(self, dimension: int, width: int, width_shown: int) -> None:
        super().__init__()
        self.dimension = dimension
        with rng_as_before():
            seed_torch(0)
            self.linear = nn.Linear(width, width_shown)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """With another width."""
        found: torch.Tensor = self.linear(x.movedim(self.dimension, -1))
        return found.movedim(-1, self.dimension)


def _maps_between(
    pairs: Mapping[str, str], own: Mapping[str, Any], shown: Mapping[str, Any]
) -> nn.ModuleList:
    return nn.ModuleList(
        _map_between(name, own[name], other, shown[other]) for name, other in pairs.items()
    )


def _map_between(name: str, own: Any, other: str, shown: Any) -> nn.Module:
    if not isinstance(own, torch.Tensor) or not isinstance(shown, torch.Tensor):
        raise UsageError(f"features: {name!r} and {other!r} have to give one tensor each.")
    if own.shape == shown.shape:
        return nn.Identity()
    widths = list(zip(own.shape, shown.shape, strict=False))
    differ = [place for place, (one, two) in enumerate(widths) if one != two]
    if own.dim() != shown.dim() or len(differ) > 1:
        raise UsageError(
            f"features: {name!r} gives {tuple(own.shape)} and {other!r} {tuple(shown.shape)}; only "
            "one dimension may differ. Name layers at the same depth."
        )
    return _Map(differ[0], *widths[differ[0]]).to(own.device, own.dtype)


def _learning(maps: nn.ModuleList) -> list[nn.Module]:
    return [each for each in maps if isinstance(each, _Map)]


def _step(loss: torch.Tensor, optimizers: Iterable[torch.optim.Optimizer]) -> None:
    for each in optimizers:
        each.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for each in optimizers:
        each.step()


def _expect_called(model: nn.Module, names: Iterable[str], results: Mapping[str, Any]) -> None:
    for name in names:
        if name not in results:
            raise UsageError(
                f"features names {name!r}, which {type(model).__name__} does not call for this "
                "batch: it has no result. Name a layer that is called each time."
            )


@contextmanager
def _results_of(model: nn.Module, names: list[str]) -> Iterator[dict[str, Any]]:
    """What parts of a model gave when it was called last."""
    results: dict[str, Any] = {}
    parts = dict(model.named_modules())
    for name in names:
        if name not in parts:
            raise UsageError(
                f"features names {name!r}, which is no part of {type(model).__name__}. "
                f"It has {', '.join(list(parts)[1:9])}."
            )
    handles = [
        parts[name].register_forward_hook(
            lambda _, __, result, name=name: results.__setitem__(name, result)
        )
        for name in names
    ]
    try:
        yield results
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _in_evaluation(model: nn.Module) -> Iterator[None]:
    with modes_as_before(model):
        model.eval()
        yield


def _check(student: nn.Module, teacher: nn.Module, temperature: float) -> None:
    if student is teacher:
        raise UsageError("student and teacher are one model; nothing can be learnt. Copy it.")
    if temperature <= 0:
        raise UsageError(f"temperature is {temperature}; expected more than 0.")
