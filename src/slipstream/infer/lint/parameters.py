"""Parameters that training never changes: those that no result depends on, and frozen ones."""

import time
from collections.abc import Sequence

import torch

from slipstream.infer.inputs import Inputs
from slipstream.infer.leaves import tensors_of
from slipstream.infer.lint.finding import Checked, Row
from slipstream.infer.subject import copied, in_training

UNUSED = "unused-parameters"
FROZEN = "never-updated-parameters"
_QUICK_S = 1.0  # passes are made whatever the limit
_DO_UNUSED = (
    "Remove them. They are stored, sent and kept by the optimizer, and DistributedDataParallel "
    "has to search for them in each step."
)
_DO_UNSEEN = (
    "Whole numbers and flags among the results have no gradient. Where none of them needs these "
    "parameters either, remove them: they are stored, sent and kept by the optimizer."
)
_DO_FROZEN = (
    "If that is meant, give the optimizer the others alone, and run what stands before the first "
    "trained layer under torch.no_grad(). If not: requires_grad_(True)."
)


def unused_parameters(model: torch.nn.Module, inputs: Inputs, until: float) -> Checked:
    """Those that get no gradient from the sum of all floating-point results, neither in training
    nor in evaluation. Works on copies, until about `until`.
    """
    trained = [name for name, each in model.named_parameters() if each.requires_grad]
    if not trained:
        return Checked(UNUSED, "absent", "no parameter is trained")
    unused, failures, has_others = trained, [], False
    for training in (True, False):
        started = time.monotonic()
        try:
            reached, others = _reached(model, inputs, training)
            has_others = has_others or others
            unused = [name for name in unused if name not in reached]
        except Exception as error:  # a batch of one in training, a result that has no gradient
            failures.append(str(error).strip().split("\n")[0][:120])
        if not unused:
            return Checked(UNUSED, "nothing", f"all of {len(trained)} parameters get a gradient")
        now = time.monotonic()
        if training and now - started > _QUICK_S and now + (now - started) > until:
            return Checked(UNUSED, "unmeasured", "no time was left for a second backward pass")
    if failures:  # what one of them does not reach, the other may
        return Checked(UNUSED, "unmeasured", f"a backward pass failed: {failures[-1]}")
    return Checked(
        UNUSED,
        "finding",
        f"{_sizes(model, unused)} without a gradient: no "
        f"{'floating-point ' if has_others else ''}result depends on them.",
        _DO_UNSEEN if has_others else _DO_UNUSED,
        rows=_rows(model, unused),
    )


def frozen_parameters(model: torch.nn.Module) -> Checked:
    """Those with `requires_grad=False` in a model in training that has others. Buffers are not
    parameters.
    """
    frozen = [name for name, each in model.named_parameters() if not each.requires_grad]
    if not frozen:
        return Checked(FROZEN, "nothing", "all parameters are trained")
    if not model.training or len(frozen) == len(list(model.parameters())):
        return Checked(FROZEN, "nothing", "the model is not in training")
    return Checked(
        FROZEN,
        "finding",
        f"{_sizes(model, frozen)} with requires_grad=False in a model that is in training.",
        _DO_FROZEN,
        rows=_rows(model, frozen),
    )


def _reached(model: torch.nn.Module, inputs: Inputs, training: bool) -> tuple[set[str], bool]:
    """Parameters with a gradient, and whether there are results that cannot have one."""
    made = in_training(copied(model), training)
    for own, theirs in zip(made.parameters(), model.parameters(), strict=True):
        own.requires_grad_(theirs.requires_grad)
    with torch.enable_grad():
        results = tensors_of(inputs.copy()(made))
        total = sum(
            result.abs().float().sum() if result.is_complex() else result.float().sum()
            for result in results
            if (result.is_floating_point() or result.is_complex()) and result.requires_grad
        )
        if not isinstance(total, torch.Tensor):
            raise TypeError("no result has a gradient")
        total.backward()  # type: ignore[no-untyped-call]
    has_others = any(not (each.is_floating_point() or each.is_complex()) for each in results)
    return {name for name, each in made.named_parameters() if each.grad is not None}, has_others


def _rows(model: torch.nn.Module, names: Sequence[str]) -> list[Row]:
    """One for each module that has some."""
    by_module: dict[str, list[str]] = {}
    for name in names:
        module, _, own = name.rpartition(".")
        shape = "x".join(map(str, model.get_parameter(name).shape)) or "scalar"
        by_module.setdefault(module, []).append(f"{own} {shape}")
    return [Row(", ".join(owned), [(module,)]) for module, owned in by_module.items()]


def _sizes(model: torch.nn.Module, names: Sequence[str]) -> str:
    found = [model.get_parameter(name) for name in names]
    size = sum(each.numel() * each.element_size() for each in found)
    numbers = sum(each.numel() for each in found)
    what = "parameter" if len(found) == 1 else "parameters"
    return f"{len(found)} {what}, {numbers:,} numbers or {_size_words(size)},"


def _size_words(size: int) -> str:
    if size >= 1_000_000:
        return f"{size / 1e6:.3g} MB"
    return f"{size / 1e3:.3g} kB" if size >= 1000 else f"{size} bytes"
