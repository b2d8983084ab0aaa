"""Operations of operators that torch's own counter does not know."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import sdpa_flop_count


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))  # type: ignore[no-untyped-call]


def _recurrent(given: Any, *args: Any, **_: Any) -> int:
    """Each matrix is multiplied with each row once, in whatever order they come."""
    weights = args[0] if isinstance(args[0], list | tuple) else args[:2]
    rows = given.numel() // given.shape[-1]
    numbers = sum(int(weight.numel()) for weight in weights if weight.dim() == 2)
    return 2 * int(rows) * numbers


FORMULAS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten.mkldnn_rnn_layer: _recurrent,
    torch.ops.aten._cudnn_rnn: _recurrent,
}
for _formula in FORMULAS.values():
    _formula._get_raw = True  # type: ignore[attr-defined]  # tensors, not their shapes alone
