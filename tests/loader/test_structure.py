"""Walking over the tensors of batches of every make."""

import collections
import dataclasses
import types
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from slipstream.loader.structure import (
    is_dense,
    is_plain,
    map_tensors,
    moves_itself,
    reachable_tensors,
    tensor_bytes,
)

ONE = torch.ones(2)


def double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    name: str
    made: list[torch.Tensor] = dataclasses.field(init=False, default_factory=lambda: [ONE])


@dataclasses.dataclass(slots=True)
class Slotted:
    x: torch.Tensor
    y: int = 3


class Tagged(dict[str, Any]):
    """A dict with an attribute, whose constructor takes something else."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self.tag = tag


class Strict(collections.OrderedDict[str, Any]):
    """As transformers' ModelOutput: refuses update."""

    def update(self, *_: Any, **__: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


class Keys(dict[str, Any]):
    """Attributes are keys; a missing one is a KeyError."""

    __getattr__ = dict.__getitem__


class Shallow(MutableMapping[str, Any]):
    """copy.copy of it shares the items."""

    def __init__(self, items: dict[str, Any]) -> None:
        self._items = items

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._items[key] = value

    def __delitem__(self, key: str) -> None:
        del self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Odd(Sequence[Any]):
    """An immutable sequence that cannot be made from a list."""

    def __init__(self, first: Any, second: Any) -> None:
        self._items = (first, second)

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __len__(self) -> int:
        return 2


class Batch:
    """A custom batch as torch's documentation has it, with `.to`."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def to(self, *_: Any, **__: Any) -> "Batch":
        return self


class Quantity:
    """As pint's and astropy's: `.to` takes a unit."""

    def to(self, unit: str) -> str:
        return unit


def is_doubled(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and bool((value == 2).all())


def test_builtin_containers_at_any_depth() -> None:
    batch = {"a": [ONE, (ONE, "text", None)], "b": {1: ONE}, "c": b"bytes", "d": 1.5}
    out = map_tensors(batch, double)
    assert is_doubled(out["a"][0]) and is_doubled(out["a"][1][0]) and is_doubled(out["b"][1])
    assert type(out["a"][1]) is tuple
    assert out["a"][1][1:] == ("text", None) and (out["c"], out["d"]) == (b"bytes", 1.5)
    assert batch["a"][0] is ONE, "the batch given is not changed"  # type: ignore[index]


def test_types_and_extra_attributes_are_kept() -> None:
    pair = map_tensors(Pair(ONE, "y"), double)
    assert type(pair) is Pair and is_doubled(pair.x) and pair.y == "y"

    tagged = Tagged("blue")
    tagged["x"] = ONE
    out = map_tensors(tagged, double)
    assert type(out) is Tagged and out.tag == "blue" and is_doubled(out["x"])
    assert tagged["x"] is ONE

    strict = Strict(x=ONE)
    assert type(map_tensors(strict, double)) is Strict
    default = map_tensors(collections.defaultdict(list, x=ONE), double)
    assert default["new"] == [] and is_doubled(default["x"])
    user = map_tensors(collections.UserDict(x=ONE), double)
    assert type(user) is collections.UserDict and is_doubled(user["x"])
    proxy = map_tensors(types.MappingProxyType({"x": ONE}), double)
    assert type(proxy) is types.MappingProxyType and is_doubled(proxy["x"])
    line = map_tensors(collections.deque([ONE], maxlen=3), double)
    assert type(line) is collections.deque and line.maxlen == 3 and is_doubled(line[0])


def test_dataclasses() -> None:
    frozen = Frozen(ONE, "n")
    out = map_tensors(frozen, double)
    assert type(out) is Frozen and is_doubled(out.x) and is_doubled(out.made[0])
    assert out.name == "n" and frozen.x is ONE
    slotted = map_tensors(Slotted(ONE), double)
    assert type(slotted) is Slotted and is_doubled(slotted.x) and slotted.y == 3
    assert map_tensors(Frozen, double) is Frozen, "the class itself is no batch"


def test_types_that_cannot_be_made_again_become_plain() -> None:
    assert type(map_tensors(Odd(ONE, 1), double)) is list
    shallow = Shallow({"x": ONE})
    out = map_tensors(shallow, double)
    assert type(out) is dict and is_doubled(out["x"])
    assert shallow["x"] is ONE, "a copy that shares items must not change the original"


def test_without_tensors_the_same_objects_come_back() -> None:
    for same in ([1, "a"], {"a": (1, 2)}, range(5), "text", torch.Size([2]), {1, 2}, Odd(1, 2)):
        assert map_tensors(same, double) is same


def test_errors_of_the_function_pass() -> None:
    def refuse(_: torch.Tensor) -> None:
        raise TypeError("no")

    with pytest.raises(TypeError, match="no"):
        map_tensors(collections.OrderedDict(x=[ONE]), refuse)


def test_objects_that_move_themselves_go_to_the_hook() -> None:
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    out = map_tensors([packed, Batch(ONE), ONE], double, lambda thing: type(thing).__name__)
    assert out[:2] == ["PackedSequence", "Batch"] and is_doubled(out[2])
    without = map_tensors([packed, Batch(ONE)], double)
    assert type(without[0]) is PackedSequence, "without a hook: a named tuple"
    assert moves_itself(packed) and moves_itself(Batch(ONE))
    assert not moves_itself(Quantity()), "quantities with units hold no tensors"
    assert not moves_itself(Keys(to=print)) and not moves_itself(ONE) and not moves_itself(Batch)
    assert is_doubled(map_tensors(Keys(x=ONE), double, lambda _: 1 / 0)["x"])


def test_reachable_tensors() -> None:
    class Hidden:
        __slots__ = ("__secret", "unset")

        def __init__(self, value: object) -> None:
            self.__secret = value

    thing = types.SimpleNamespace(a={"b": [Hidden((ONE,))]})
    thing.itself = thing
    found = reachable_tensors(thing)
    assert found is not None and len(found) == 1 and found[0] is ONE
    assert reachable_tensors(Quantity()) == []
    crowd = types.SimpleNamespace(many=[[i] for i in range(20_000)])
    assert reachable_tensors(crowd) is None


def test_tensor_bytes() -> None:
    assert tensor_bytes({"a": ONE, "b": [ONE], "c": torch.zeros(0), "d": "text"}) == 8
    assert tensor_bytes(torch.zeros(1, dtype=torch.complex64).expand(5)) == 40
    assert tensor_bytes(Batch(ONE)) == 8
    assert tensor_bytes(torch.eye(2).to_sparse()) == 2 * 2 * 8 + 2 * 4
    assert tensor_bytes(None) == 0


def test_dense_and_plain() -> None:
    image = torch.zeros(2, 3, 4, 5)
    assert is_dense(image) and is_dense(image.permute(2, 0, 3, 1))
    assert is_dense(image.to(memory_format=torch.channels_last)) and is_dense(torch.zeros(0, 3))
    assert is_dense(torch.zeros(())) and is_dense(image[:, 1:2, :1, :1][:1])
    for gaps in (image[:, 1:], image[..., ::2], torch.zeros(1).expand(4), torch.zeros(3, 1)[::2]):
        assert is_dense(gaps) == gaps.is_contiguous()
    assert is_plain(ONE) and is_plain(torch.nn.Parameter(ONE))
    assert not is_plain(torch.eye(2).to_sparse())
