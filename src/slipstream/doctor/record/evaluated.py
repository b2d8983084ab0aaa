"""Passes in evaluation mode with gradients on: is what they leave learned from?"""

import weakref
from contextlib import suppress
from typing import Any

from torch.utils._pytree import tree_leaves


class Watched:
    """Lives as long as the node of a graph that it is put on."""


class Evaluated:
    """Adds to what is known of such a pass whether its graph was gone before the next backward
    pass: then nothing was learned from it, whatever comes between.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[list[Any], list[weakref.ref[Watched]]]] = []

    def watch(self, facts: list[Any], result: Any) -> None:
        """`facts` are the model, whether it is in training, and whether gradients are on."""
        graphs = []
        with suppress(Exception):  # whatever the results of a model are
            for leaf in tree_leaves(result):
                node = getattr(leaf, "grad_fn", None)
                if node is not None:
                    # Another pass may have given the same.
                    watched = node.metadata.setdefault("slipstream-evaluated", Watched())
                    graphs.append(weakref.ref(watched))
        if graphs:
            self._waiting.append((facts, graphs))

    def before_backward(self) -> None:
        """Of a pass, or of gradients that the script asks for."""
        for facts, graphs in self._waiting:
            facts.append(all(graph() is None for graph in graphs))
        self._waiting.clear()
