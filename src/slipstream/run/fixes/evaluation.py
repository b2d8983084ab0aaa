"""`inference-mode`: evaluation that never learns runs without a graph.

A call of a model in evaluation mode, with gradients on, runs under torch.no_grad where all of this
holds: the source of the function that makes it keeps the result to itself and has nothing to do
with gradients; the graphs of the first calls were all gone before the next backward pass; and the
same call without gradients gave the same bits, tried once for each shape of input. Not
torch.inference_mode, whose tensors autograd refuses for ever.
"""

import sys
import weakref
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from types import CodeType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from slipstream.doctor.attribute import attribute
from slipstream.doctor.record.places import is_users, place_of
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.eval_with_grad import wasted_passes
from slipstream.patches import Patches
from slipstream.run.evaluating.callee import Looks
from slipstream.run.evaluating.flow import keeps_to_itself
from slipstream.run.evaluating.purity import (
    are_equal,
    are_plain,
    asks_for_gradients,
    has_hooks,
    has_uncounted,
    signature,
    state_of,
    watched,
)
from slipstream.run.evaluating.speech import says_something
from slipstream.run.fix import Fix, Situation, Undo
from slipstream.words import count_of

NAME = "inference-mode"
WATCHED = 4  # calls whose graphs must be seen to go
_MOST_SHAPES = 8
_SEES_LOCALS = {"locals", "vars", "exec", "f_locals"}
_OTHER = (torch.jit.ScriptModule, torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)


def applies(situation: Situation) -> tuple[bool, str]:
    """Where passes were seen that nothing learns from."""
    capture = situation.capture
    wasted = wasted_passes(Case(capture, attribute(capture)))
    count = sum(len(found) for found in wasted.values())
    if not count:
        return False, "no evaluation with gradients on was seen"
    if count < WATCHED:
        return False, f"evaluation with gradients on was seen {count_of(count, 'time')} only"
    return True, "evaluation with gradients on"


def apply(situation: Situation) -> Undo:
    """Of modules that the script calls itself."""
    calls = _Calls(situation)
    patches = Patches()
    patches.replace(torch.nn.Module, "__call__", calls.wrap_module)
    for name in ("backward", "grad"):
        patches.replace(torch.autograd, name, calls.wrap_learning)
    return patches.undo


class _Graph:
    """Lives as long as the node of a graph that it is put on."""


@dataclass
class _Site:
    """One call in the script's source."""

    place: str
    is_open: bool  # whether it may still turn out to be evaluation
    looks: Looks
    gone: int = 0  # graphs that were seen to go
    graphs: list[weakref.ref[_Graph]] = field(default_factory=list)
    equal: weakref.WeakKeyDictionary[Any, set[Any]] = field(
        default_factory=weakref.WeakKeyDictionary
    )


def _locals(frame: Any) -> dict[str, Any]:
    names = frame.f_locals
    found = dict(names)
    code = frame.f_code
    is_a_copy = code.co_flags & CO_OPTIMIZED and type(names) is dict
    if is_a_copy and not _SEES_LOCALS.intersection(code.co_names):
        # Before Python 3.13 the frame keeps it, and with it tensors that the script lets go.
        names.clear()
    return found


class _Calls:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._sites: dict[tuple[CodeType, int], _Site] = {}
        self._now: _Site | None = None  # whose call is under way
        self._is_on = True

    def wrap_module(self, original: Any) -> Any:
        calls = self

        # Torch's profiler looks for a module named self in the frame of Module.__call__.
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.training or calls._now is not None or not calls._is_on:
                return original(self, *args, **kwargs)
            if torch.compiler.is_compiling() or not torch.is_grad_enabled():
                return original(self, *args, **kwargs)
            frame = sys._getframe(1)
            site = calls._site(frame)
            if site is None or not site.is_open or not calls._is_as_seen(site, frame):
                return original(self, *args, **kwargs)
            calls._now = site
            try:
                return calls._evaluate(site, original, self, args, kwargs)
            finally:
                calls._now = None

        return call

    def wrap_learning(self, original: Any) -> Any:
        def learn(*args: Any, **kwargs: Any) -> Any:
            if self._now is not None:
                self._now.is_open = False  # the model itself asks for gradients
            elif self._is_on:
                self._look_at_graphs()
            return original(*args, **kwargs)

        return learn

    def _site(self, frame: Any) -> _Site | None:
        code = frame.f_code
        key = (code, frame.f_lasti)
        site = self._sites.get(key)
        if site is None and is_users(code):
            try:
                found = keeps_to_itself(
                    code, frame.f_lineno, _locals(frame), frame.f_globals, frame.f_lasti
                )
            except Exception as error:
                self._give_up(error)
                return None
            found.looks.forget_locals()
            place = place_of(frame) or ""
            site = self._sites[key] = _Site(place, found.stays, found.looks)
            if not found.stays:
                self._leave(site, found.why_not or "its result is returned")
        return site

    def _is_as_seen(self, site: _Site, frame: Any) -> bool:
        """Whether all that may get the result is what it was when its source was read."""
        if site.gone < WATCHED:
            return True
        try:
            is_same = site.looks.are_same(_locals(frame))
        except Exception as error:
            self._give_up(error)
            return False
        if not is_same:
            self._leave(site, "something else gets its results now")
        return is_same

    def _leave(self, site: _Site, why: str) -> None:
        site.is_open = False
        self._situation.note(NAME, f"left {site.place} alone: {why}", left=True)

    def _evaluate(self, site: _Site, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if site.gone >= WATCHED:
            try:
                known = signature(module, (args, kwargs))
            except Exception:  # of tensors without a shape, such as nested ones
                self._leave(site, "what it is given cannot be described")
                return original(module, *args, **kwargs)
            equal = site.equal.setdefault(module, set())
            if known in equal:
                return self._without(original, module, args, kwargs)
            if len(equal) < _MOST_SHAPES:
                return self._compare(site, known, original, module, args, kwargs)
            return original(module, *args, **kwargs)
        result = original(module, *args, **kwargs)
        self._watch(site, result)
        return result

    def _watch(self, site: _Site, result: Any) -> None:
        nodes = [getattr(leaf, "grad_fn", None) for leaf in tree_leaves(result)]
        for node in nodes:
            if node is not None:
                graph = _Graph()
                node.metadata["slipstream-evaluation"] = graph
                site.graphs.append(weakref.ref(graph))
        if not any(nodes):
            site.is_open = False  # nothing to gain

    def _look_at_graphs(self) -> None:
        for site in self._sites.values():
            if not site.graphs or not site.is_open:
                continue
            if any(graph() is not None for graph in site.graphs):
                site.is_open = False
            site.gone += len(site.graphs)
            site.graphs.clear()

    def _compare(
        self, site: _Site, known: Any, original: Any, module: Any, args: Any, kwargs: Any
    ) -> Any:
        given = args, kwargs
        try:
            is_silent, asks = not says_something(module), asks_for_gradients(module)
            can_be_compared = are_plain(given) and not self._is_special(module)
            watch = watched(module) if can_be_compared else None
            before = state_of(module, given) if can_be_compared else None
        except Exception as error:
            self._give_up(error)
            return original(module, *args, **kwargs)
        if not is_silent:
            self._leave(site, "it prints, logs or writes")
            return original(module, *args, **kwargs)
        if asks:
            self._leave(site, "parts of it compute in another way without gradients")
            return original(module, *args, **kwargs)
        if watch is None or watch.why_not:
            site.is_open = False
            return original(module, *args, **kwargs)
        result = original(module, *args, **kwargs)
        try:
            is_same = before == state_of(module, given) and watch.is_same()
            site.is_open = site.is_open and is_same
            if site.is_open:
                with torch.no_grad():
                    again = original(module, *args, **kwargs)
                site.is_open = are_equal(result, again)
        except Exception as error:
            self._give_up(error)
            return result
        if site.is_open:
            site.equal[module].add(known)
            self._situation.note(NAME, f"no graph for {site.place}")
        else:
            self._leave(site, "it computes differently without")
        return result

    def _is_special(self, module: Any) -> bool:
        is_other = isinstance(module, _OTHER) or hasattr(module, "_orig_mod")
        return is_other or has_hooks(module) or has_uncounted(module)

    def _without(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        try:
            with torch.no_grad():
                return original(module, *args, **kwargs)
        except Exception:
            self._is_on = False
        # An error of the script's own comes again, as its own.
        return original(module, *args, **kwargs)

    def _give_up(self, error: Exception) -> None:
        self._is_on = False
        self._situation.give_up(NAME, error)


FIX = Fix(
    NAME, "E", "evaluation that never learns keeps no graph", ("eval-with-grad",), applies, apply
)
