"""Variants whose weights are a part of what was made of them."""

from typing import Any

import torch
from torch import nn

from slipstream.errors import UsageError


class FixedWeights(nn.Module):
    """Refuses other weights that are loaded into it: they would reach nothing, without a word."""

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        own = self.state_dict()
        loaded = {name.removeprefix(prefix): value for name, value in state_dict.items()
                  if name.startswith(prefix)}  # fmt: skip
        if all(name in own and _is_same(own[name], value) for name, value in loaded.items()):
            return
        raise UsageError(
            "The weights of this variant are constants of what was compiled, so others cannot be "
            "loaded into it. Load them into the model that was optimized; then optimize that again,"
            " or build the stored variant of it by slipstream.infer.load(folder, model)."
        )


def _is_same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return True
    return one.shape == other.shape and torch.equal(one, other.to(one.device, one.dtype))
