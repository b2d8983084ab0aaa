"""Facts about the modules that a loop calls."""

import weakref
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

from slipstream.doctor.record.batches import is_dense
from slipstream.doctor.record.inside import (
    Inside,
    Layer,
    can_look_inside,
    is_convolution,
    looking_inside,
)
from slipstream.doctor.record.places import users_depth, users_place
from slipstream.doctor.record.room import is_there_room

# Calls of a model whose inputs are described. The last of them is kept, or in training the last one
# before the next step: others may have chosen an action or a sample for it.
_LOOKED_AT = 3
_TRAINED = "train"  # a `mode_name`
_MOST_HELD = 3
_MOST_SHAPES = 8
_MOST_TENSORS = 32  # of a call
# Exchanges of gradients that torch times itself, without the first ones; an exchange is known when
# the one after the next begins.
_TIMED_EXCHANGES = range(5, 13)
_NOTHING = {"anomaly": 0, "autocast": 0, "synced": 0}  # calls in which it was on
_DISTRIBUTED = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")


class ModelFacts:
    """Knows the outermost modules that were called.

    Models that are not too large, and one batch for each way that they are called, are held
    until the recording is over: a function that has returned takes its model with it.
    """

    def __init__(self) -> None:
        self._numbers: MutableMapping[Any, int] = WeakIdKeyDictionary()
        self._models: dict[int, Any] = {}
        self._held: dict[int, Any] = {}
        self._to_judge: list[int] = []
        self.found: list[dict[str, Any]] = []
        self.given: dict[tuple[int, str], tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._latest: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}  # in training
        self._learned: set[int] = set()  # of which the one before a step is kept
        self.depths: dict[tuple[int, str], int] = {}  # frames of the script where it is called
        self.insides: dict[int, Inside] = {}
        self.autocast_dtype: torch.dtype | None = None  # on a device, where it was seen

    def note(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """A call of this module; its number."""
        number = self._numbers.get(module)
        if number is None:
            described = _describe(module)  # fails where parameters are not there yet
            number = self._numbers[module] = len(self.found)
            self._models[number] = weakref.ref(module)
            self.found.append(described)
            self._hold(number, module)
        facts = self.found[number]
        if facts["calls"] < _LOOKED_AT:
            facts["inputs"] = [_input(a) for a in args if isinstance(a, torch.Tensor)]
        facts["calls"] += 1
        _note_shapes(facts["shapes"], args, kwargs)
        name = mode_name(module.training, torch.is_grad_enabled())
        mode = facts["modes"].get(name)
        if mode is None:
            mode = facts["modes"][name] = {"calls": 0, "where": users_place(2), **_NOTHING}
        mode["calls"] += 1
        mode["anomaly"] += torch.is_anomaly_enabled()
        if torch.is_autocast_enabled("cuda"):
            mode["autocast"] += 1
            self.autocast_dtype = torch.get_autocast_dtype("cuda")
        if getattr(module, "require_backward_grad_sync", False):
            mode["synced"] += 1
            if mode["synced"] in _TIMED_EXCHANGES and facts["is_distributed"]:
                facts["exchanges_ns"] += _exchange_ns(module)
        if number in self._held and mode["calls"] >= _LOOKED_AT:
            if mode["calls"] == _LOOKED_AT:
                self.given[number, name] = _without_graph(args), _without_graph(kwargs)
                leaves = tree_leaves((args, kwargs))
                mode["input_learns"] = any(getattr(leaf, "requires_grad", False) for leaf in leaves)
                self.depths[number, name] = users_depth()
            elif name == _TRAINED and number not in self._learned:
                self._latest[number] = _without_graph(args), _without_graph(kwargs)
        return number

    def look_inside(self, number: int, module: Any) -> AbstractContextManager[Any] | None:
        """A context for this call if its layers are to be looked at."""
        facts = self.found[number]
        if facts["calls"] != _LOOKED_AT + 1 or not facts["parameters"]:
            return None
        return self._looking(number, module) if can_look_inside(module) else None

    @contextmanager
    def _looking(self, number: int, module: Any) -> Iterator[None]:
        with looking_inside(module) as seen:
            yield
        self.insides[number] = seen
        self._to_judge.append(number)

    def after_backward(self) -> None:
        """Gradients are there: which layers got none, and which parameters that nobody asked for.
        Lets go of what was held for that.
        """
        for number, given in self._latest.items():
            self.given[number, _TRAINED] = given
        self._learned.update(self._latest)
        self._latest.clear()
        while self._to_judge:
            number = self._to_judge.pop()
            inside = self.insides[number]
            for layer in inside.called.values():
                layer.got_gradient = not _lacks_gradient(layer)
            inside.called = {
                name: layer
                for name, layer in inside.called.items()
                if not layer.got_gradient or is_convolution(layer)
            }
            for layer in inside.called.values():
                layer.inputs = _without_graph(layer.inputs)
            model = self.module(number)
            if model is not None:
                with_gradient = [p for p in model.parameters() if p.grad is not None]
                self.found[number]["with_gradient"] = len(with_gradient)

    def module(self, number: int) -> Any:
        """The module itself, while it lives."""
        return self._models[number]()

    def hold(self) -> None:
        """All that live now, on devices, too: the script is about to be stopped."""
        for number, reference in self._models.items():
            module = reference()
            if module is not None:
                self._held[number] = module

    def release(self) -> None:
        """Everything."""
        self._held.clear()
        self.given.clear()
        self._latest.clear()
        self.insides.clear()

    def _hold(self, number: int, module: Any) -> None:
        elements = self.found[number]["elements"]
        if not elements or not is_there_room(elements, next(iter(module.parameters())).device.type):
            return
        self._held[number] = module
        while len(self._held) > _MOST_HELD:
            del self._held[next(iter(self._held))]


def _note_shapes(known: list[list[list[int]]], args: Any, kwargs: Any) -> None:
    """Those of a call, unless one before had the same: of what may be pictures or sequences, or of
    all tensors where there are none.
    """
    if len(known) >= _MOST_SHAPES:
        return
    found = list(islice(_shapes((args, kwargs)), _MOST_TENSORS))
    found = [shape for shape in found if len(shape) > 2] or found
    if found and found not in known:
        known.append(found)


def _shapes(given: Any) -> Iterator[list[int]]:
    if isinstance(given, torch.Tensor):
        yield list(given.shape)
    elif isinstance(given, (tuple, list, dict)):
        for value in given.values() if isinstance(given, dict) else given:
            yield from _shapes(value)


def _exchange_ns(module: Any) -> list[int]:
    """What the latest exchange of gradients took beyond the backward pass that it hides behind, as
    torch has timed it; nothing where it has not.
    """
    with suppress(Exception):  # no such method in another version or class
        known = module._get_ddp_logging_data()
        whole, hidden = known["backward_comm_time"], known["backward_compute_comm_overlap_time"]
        return [max(0, int(whole) - int(hidden))] if whole else []
    return []


def mode_name(training: bool, with_grad: bool) -> str:
    """A way to call a model."""
    return ("train" if training else "eval") + ("" if with_grad else " no_grad")


def _lacks_gradient(layer: Layer) -> bool:
    """Whether it was computed, can learn, and got no gradient."""
    parameters = [p for p in layer.module.parameters() if p.requires_grad]
    return bool(parameters) and all(p.grad is None for p in parameters)


def _without_graph(thing: Any) -> Any:
    def cut(value: Any) -> Any:
        return value.detach() if isinstance(value, torch.Tensor) else value

    return tree_map(cut, thing)


def _input(tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()) if tensor.layout == torch.strided else None,
        "dense": tensor.layout == torch.strided and is_dense(tensor),
        "channels_last": tensor.ndim == 4
        and tensor.is_contiguous(memory_format=torch.channels_last)
        and not tensor.is_contiguous(),
        "device": tensor.device.type,
        "requires_grad": tensor.requires_grad,
    }


def _describe(module: Any) -> dict[str, Any]:
    kinds: dict[str, int] = {}
    for part in module.modules():
        kind = type(part).__name__
        kinds[kind] = kinds.get(kind, 0) + 1
    parameters = list(module.parameters())
    convolutions = [m for m in module.modules() if type(m).__name__ in ("Conv2d", "Conv3d")]
    last = sum(
        m.weight.ndim == 4 and m.weight.is_contiguous(memory_format=torch.channels_last)
        and not m.weight.is_contiguous()
        for m in convolutions
    )  # fmt: skip
    return {
        "class": type(module).__name__,
        "is_loss": not parameters and "Loss" in type(module).__name__,
        "compiled": hasattr(module, "_orig_mod"),
        "kinds": kinds,
        "parameters": len(parameters),
        "elements": sum(p.numel() for p in parameters),
        "trainable": sum(p.requires_grad for p in parameters),
        "dtypes": sorted({str(p.dtype).removeprefix("torch.") for p in parameters}),
        "convolutions": len(convolutions),
        "channels_last_weights": last,
        "is_distributed": type(module).__name__ in _DISTRIBUTED,
        "exchanges_ns": [],
        "calls": 0,
        "modes": {},
        "inputs": [],
        "shapes": [],
    }
