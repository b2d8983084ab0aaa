"""Variants whose weights are a part of what was made of them."""

from typing import Any

from torch import nn

from slipstream.errors import UsageError


class FixedWeights(nn.Module):
    """Refuses weights that are loaded into it: they would reach nothing, without a word."""

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        raise UsageError(
            "The weights of this variant are constants of what was compiled, so others cannot be "
            "loaded into it. Load them into the model that was optimized; then optimize that again,"
            " or build the stored variant of it by slipstream.infer.load(folder, model)."
        )
