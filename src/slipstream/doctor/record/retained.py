"""Graphs that a backward pass was told to keep: whether anything goes through them again."""

from typing import Any

import torch

from slipstream.doctor.capture import Call

_FIRST = 3  # not the first ones: a script may begin with something else
_LOOKS = 4
_MOST_NODES = 20_000


class RetainedGraphs:
    """Looks at a few of them. Holds the nodes of one graph until the next backward passes."""

    def __init__(self) -> None:
        self._nodes: set[Any] = set()
        self._of: Call | None = None
        self._is_used = False
        self._looks = 0

    def before_backward(
        self, tensors: Any, call: Call, retain_graph: bool | None = None, create_graph: bool = False
    ) -> None:
        """A backward pass from these begins at this call."""
        self.before_use(tensors)
        if not retain_graph or create_graph:
            return
        retained = call.facts["retained"] = call.facts.get("retained", 0) + 1
        if retained <= _FIRST or self._looks > _LOOKS:
            return
        self._judge()
        self._looks += 1
        if self._looks <= _LOOKS:
            self._of, self._is_used = call, False
            self._nodes = _nodes_of(tensors)

    def before_use(self, tensors: Any) -> None:
        """Gradients are computed from these."""
        if self._nodes and not self._is_used:
            self._is_used = not self._nodes.isdisjoint(_nodes_of(tensors))

    def _judge(self) -> None:
        if self._of is not None:
            facts = self._of.facts
            facts["retained_looked_at"] = facts.get("retained_looked_at", 0) + 1
            facts["retained_used"] = facts.get("retained_used", 0) + self._is_used
        self._of, self._nodes = None, set()


def _nodes_of(tensors: Any) -> set[Any]:
    """All nodes of a graph but the leaves, which every step has in common."""
    roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    waiting: list[Any] = [getattr(root, "grad_fn", None) for root in roots]
    found: set[Any] = set()
    while waiting and len(found) < _MOST_NODES:
        node = waiting.pop()
        if node is None or node in found or node.name().endswith("AccumulateGrad"):
            continue
        found.add(node)
        waiting += [after for after, _ in node.next_functions]
    return found
