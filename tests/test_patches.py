"""Replacements go in any order, and nothing of them stays."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from slipstream.patches import Patches, _layers


class Owner:
    def say(self) -> str:
        return "own"


class Heir(Owner):
    pass


def saying(word: str) -> Any:
    def wrap(original: Any) -> Any:
        def say(*args: Any) -> str:
            return f"{word} {original(*args)}"

        return say

    return wrap


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
@pytest.mark.parametrize("owner", [Owner, Heir])
def test_any_order(owner: type[Owner], order: tuple[str, ...]) -> None:
    before = vars(owner).get("say")
    patches = {word: Patches() for word in "abc"}
    for word, each in patches.items():
        each.replace(owner, "say", saying(word))
    left = ["c", "b", "a"]
    assert owner().say() == "c b a own"
    for word in order:
        patches[word].undo()
        left.remove(word)
        assert owner().say() == " ".join([*left, "own"])
    assert vars(owner).get("say") is before
    assert not _layers


def test_one_that_came_while_another_was_there_does_not_bring_it_back() -> None:
    place = SimpleNamespace(say=lambda: "own")
    own = place.say
    fixes, hooks = Patches(), Patches()
    fixes.replace(place, "say", saying("fixed"))
    hooks.replace(place, "say", saying("seen"))
    fixes.undo()
    assert place.say() == "seen own"
    hooks.undo()
    assert place.say is own


def test_twice_the_same_and_undone_twice() -> None:
    patches = Patches()
    patches.replace(Owner, "say", saying("a"))
    patches.replace(Owner, "say", saying("b"))
    assert Owner().say() == "b a own"
    patches.undo()
    patches.undo()
    assert Owner().say() == "own"


def test_what_is_not_there_and_what_cannot_be_changed() -> None:
    patches = Patches()
    patches.replace(Owner, "nothing", saying("a"))
    patches.replace(int, "bit_length", saying("a"))
    assert (5).bit_length() == 3
    patches.undo()
    assert not hasattr(Owner, "nothing")


class Bar:
    @classmethod
    def write(cls, text: str) -> str:
        return f"{cls.__name__}: {text}"

    @staticmethod
    def format(text: str) -> str:
        return f"<{text}>"


def test_methods_of_a_class_can_still_be_called_on_an_instance() -> None:
    """As progress bars are written to."""
    before = dict(vars(Bar))
    one, other = Patches(), Patches()
    for name in ("write", "format"):
        one.replace(Bar, name, saying("a"))
        other.replace(Bar, name, saying("b"))
    assert Bar().write("x") == Bar.write("x") == "b a Bar: x"
    assert Bar().format("x") == Bar.format("x") == "b a <x>"
    one.undo()
    assert Bar().write("x") == "b Bar: x"
    other.undo()
    assert dict(vars(Bar)) == before
    assert Bar().write("x") == "Bar: x"


def test_parameters_without_a_shape_may_be_moved_all_the_same() -> None:
    allowed = torch.nn.parameter.UninitializedTensorMixin._allowed_methods
    before = list(allowed)
    first, second = Patches(), Patches()

    def wrap(to: Any) -> Any:
        def moved(*args: Any, **kwargs: Any) -> Any:
            return to(*args, **kwargs)

        return moved

    for patches in (first, second):
        patches.replace(torch.Tensor, "to", wrap)
    torch.nn.LazyLinear(4).to("cpu")
    first.undo()
    torch.nn.LazyLinear(4).to("cpu")
    second.undo()
    torch.nn.LazyLinear(4).to("cpu")
    assert allowed == before
