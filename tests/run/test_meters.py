"""Meters are given numbers that are on their way, and nobody can tell."""

import copy
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream.run.deferred import meters
from slipstream.run.deferred.meters import Meters, only_sums_up
from slipstream.run.deferred.value import Deferred
from slipstream.run.fixes import deferred_values
from tests.run.loop_kit import situation

METER = '''
class AverageMeter(object):
    """Computes and stores the average and current value"""
    def __init__(self, name, fmt=":f"):
        self.name = name
        self.fmt = fmt
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        fmtstr = "{name} {val" + self.fmt + "} ({avg" + self.fmt + "})"
        return fmtstr.format(**self.__dict__)
'''

LOOP = """
def train(values, look, meter):
    losses = meter("loss", ":.6e")
    for number, value in enumerate(values):
        losses.update(value.item(), 3 + number % 2)
        look(number, losses)
    return losses
"""


def made(source: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user's."""
    file = place / "script.py"
    file.write_text(source)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "script", raising=False)
    __import__("script")
    return sys.modules["script"]


class Waits:
    """How often somebody waited for a number."""

    count = 0


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waits]:
    """The fix, with numbers of the processor in the place of a device's."""
    found = Waits()

    def late(tensor: torch.Tensor) -> Any:
        kept = tensor.detach().clone()

        def read() -> Any:
            found.count += 1
            return torch._C.TensorBase.item(kept)

        return Deferred(read)

    monkeypatch.setattr(deferred_values, "deferred", late)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    undo = deferred_values.apply(situation())
    yield found
    undo()


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return made(METER + LOOP, tmp_path, monkeypatch)


def values(count: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [*torch.randn(count, dtype=torch.float64)]


def nothing(number: int, meter: Any) -> None:
    pass


LOOKS: dict[str, Callable[[Any], Any]] = {
    "text": str,
    "attribute": lambda meter: (meter.val, meter.avg, meter.sum, meter.count),
    "vars": lambda meter: dict(sorted(vars(meter).items())),
    "copy": lambda meter: vars(copy.copy(meter)),
    "pickle": lambda meter: vars(pickle.loads(pickle.dumps(meter))),
    "type": lambda meter: [type(value).__name__ for value in vars(meter).values()],
    "set": lambda meter: (setattr(meter, "count", 1), meter.avg),
    "reset": lambda meter: (meter.reset(), meter.avg),
}


@pytest.mark.parametrize("name", LOOKS)
def test_who_looks_sees_what_was_given(script: Any, waits: Waits, name: str) -> None:
    given = values(40)

    def seen() -> Any:
        found: list[Any] = []

        def look(number: int, meter: Any) -> None:
            if number % 10 == 9:
                found.append(LOOKS[name](meter))

        meter = script.train(given, look, script.AverageMeter)
        return found, vars(meter)

    with_fix = seen()
    assert waits.count > 0
    expected = [value.clone() for value in given]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: False))
        given = expected
        assert seen() == with_fix


def test_nobody_waits_until_somebody_looks(script: Any, waits: Waits) -> None:
    counts = []
    meter = script.train(values(30), lambda *_: counts.append(waits.count), script.AverageMeter)
    assert counts[-1] == 0
    assert type(meter.avg) is float
    assert waits.count == 29  # the first was looked up before the meter was known


def test_long_waits_do_not_pile_up(script: Any, waits: Waits) -> None:
    given = values(5 * meters._MOST)
    meter = script.train(given, nothing, script.AverageMeter)
    assert waits.count > 3 * meters._MOST
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: False))
        assert vars(meter) == vars(script.train(given, nothing, script.AverageMeter))


def test_another_object_under_the_same_name_gets_plain_numbers(script: Any, waits: Waits) -> None:
    class Other:
        def __init__(self, *_: Any) -> None:
            self.got: list[Any] = []

        def update(self, value: Any, n: int) -> None:
            self.got.append(value)

    script.train(values(4), nothing, script.AverageMeter)
    other = script.train(values(4), nothing, Other)
    assert [type(value) for value in other.got] == [float] * 4


def test_undo_leaves_the_class_as_it_was(script: Any, waits: Waits) -> None:
    kind = script.AverageMeter
    before = dict(vars(kind))
    found = Meters()
    meter = kind("loss")
    assert found.takes(meter, "update")
    meter.update(Deferred(lambda: 2.0), 3)
    found.undo()
    assert dict(vars(kind)) == before
    assert (meter.val, meter.sum, meter.avg) == (2.0, 6.0, 2.0)


REFUSED = {
    "prints": "self.val = val\n        print(val)",
    "a global": "self.val = val\n        self.sum = TOTAL",
    "a list": "self.all.append(val)",
    "a call": "self.val = helper(val)",
    "gives back": "self.val = val\n        return val",
    "the caller's": "val += 1\n        self.val = val",
    "time": "self.val = time.time()",
}


@pytest.mark.parametrize("name", REFUSED)
def test_methods_that_do_more_are_left_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"class Meter:\n    def update(self, val, n=1):\n        {REFUSED[name]}\n"
    assert not only_sums_up(made(body, tmp_path, monkeypatch).Meter, "update")


@pytest.mark.parametrize("head", ["Meter(dict)", "Meter(Base)"])
def test_classes_that_are_more_than_their_attributes_are_left_alone(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        f"class Base: pass\nclass {head}:\n    def update(self, val):\n        self.val = val\n"
    )
    assert not only_sums_up(made(source, tmp_path, monkeypatch).Meter, "update")


@pytest.mark.parametrize(
    "more",
    [
        "    def __del__(self): print('gone')\n",
        "    @property\n    def val(self): return 1\n",
    ],
    ids=["__del__", "property"],
)
def test_classes_that_do_things_by_themselves_are_left_alone(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"class Meter:\n    def update(self, val):\n        self.val = val\n{more}"
    assert not only_sums_up(made(source, tmp_path, monkeypatch).Meter, "update")


def test_who_holds_the_attributes_sees_them_change(script: Any, waits: Waits) -> None:
    seen = []

    def look(number: int, meter: Any) -> None:
        if number == 3:
            held.append(vars(meter))
        seen.extend(one["count"] for one in held)

    held: list[Any] = []
    script.train(values(8), look, script.AverageMeter)
    assert seen == [14, 17, 21, 24, 28]
    before = waits.count
    held.clear()
    script.train(values(30), nothing, script.AverageMeter)
    assert waits.count == before  # nobody looks any more


EARLY = """
def train(values, meter, seen):
    losses = meter("loss")
    held = vars(losses)
    for value in values:
        losses.update(value.item(), 1)
        seen.append(held["count"])
"""


def test_attributes_that_are_held_before_the_first_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: Waits
) -> None:
    seen: list[int] = []
    script = made(METER + EARLY, tmp_path, monkeypatch)
    script.train(values(5), script.AverageMeter, seen)
    assert seen == [1, 2, 3, 4, 5]


NAMED = """
class History(object):
    def __init__(self): self.values = []
    def update(self, value): self.values.append(value)


def train(values, meter):
    meters = [History(), meter("loss")]
    for m in meters:
        pass
    for value in values:
        found = value.item()
        for m in meters:
            m.update(found)
    return meters
"""


def test_a_name_that_is_another_meter_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: Waits
) -> None:
    script = made(METER + NAMED, tmp_path, monkeypatch)
    script.AverageMeter("known").update(1.0)
    history, meter = script.train(values(5), script.AverageMeter)
    assert [type(value) for value in history.values] == [float] * 5
    assert meter.count == 5


HOLDING = """
def train(values, look, meter):
    losses = meter("loss")
    for value in values:
        tensor = value * 2
        look(tensor)
        losses.update(tensor.item())
        del tensor
        look(None)
    return losses
"""


def test_tensors_that_the_script_lets_go_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: Waits
) -> None:
    script = made(METER + HOLDING, tmp_path, monkeypatch)
    alive: list[Any] = []
    left = []

    def look(tensor: Any) -> None:
        if tensor is not None:
            alive.append(weakref.ref(tensor))
        else:
            left.append(alive[-1]() is not None)

    script.train(values(6), look, script.AverageMeter)
    assert left == [False] * 6
