"""Nesterov's momentum, which torch's updates of lists of tensors add to the gradients."""

from typing import Any


def adds_to_gradients(group: dict[str, Any]) -> bool:
    """Whether an update with `foreach=True` changes the gradients of this group. Where something
    decays, or is maximized, it is added to a sum that is nobody else's.

    >>> adds_to_gradients({"nesterov": True, "weight_decay": 0, "maximize": False})
    True
    """
    is_copied = group.get("weight_decay") or group.get("maximize")
    return bool(group.get("nesterov") and not is_copied)
