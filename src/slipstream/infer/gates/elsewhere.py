"""Whether an exact variant computes the same far from the example: runtimes write some operations
in ways that fail for large or small values, such as log(sigmoid(x)), for zeros, or where all is
masked.
"""

from typing import Any

import torch

from slipstream.infer.gates.reference import Reference, ask
from slipstream.infer.leaves import tensors_of

_MOST = 1e-3  # of the size of a result: no other order of sums does that
_OWN = 1e-4  # the model's own error, where it is no measure


def elsewhere(model: Any, reference: Reference) -> str | None:
    """Why it does not; None if nothing speaks against it."""
    for answer in reference.far:
        right = answer.eager if answer.exact is None else answer.exact
        results = (tensors_of(each) for each in (ask(model, answer.inputs), answer.eager, right))
        for result, eager, exact in zip(*results, strict=True):
            if not result.is_floating_point():
                continue
            bad = ~torch.isfinite(result) & torch.isfinite(eager)
            if bad.any():
                return f"{int(bad.sum())} values are not finite for inputs far from the example's"
            size = _size(exact, exact)
            if _apart(eager, exact) > _OWN * size:
                continue
            if _apart(result, exact) > _MOST * size:
                return (
                    f"its error is {_apart(result, exact) / size:.1%} of the result for inputs far "
                    "from the example's"
                )
    return None


def _apart(one: torch.Tensor, exact: torch.Tensor) -> float:
    return _size(one.double() - exact.double(), exact)


def _size(values: torch.Tensor, exact: torch.Tensor) -> float:
    kept = values.double()[torch.isfinite(exact)]
    return float(kept.square().mean().sqrt()) if kept.numel() else 0.0
