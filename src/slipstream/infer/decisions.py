"""Whether a model looks at the values of its tensors, on which its way through its layers may
depend.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from slipstream.infer.inputs import Inputs

_LOOKS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`has_looked` once an operator has told Python a value."""

    has_looked: bool = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in _LOOKS:
            self.has_looked = True
        return func(*args, **(kwargs or {}))


def looks_at_values(model: Any, inputs: Inputs) -> bool:
    """In a call with these inputs.

    >>> from slipstream.infer.inputs import inputs_of
    >>> looks_at_values(lambda x: x + 1 if x.sum() > 0 else x, inputs_of(torch.ones(2)))
    True
    """
    watch = _Watch()  # type: ignore[no-untyped-call]
    with torch.no_grad(), watch:
        inputs.copy()(model)
    return watch.has_looked
