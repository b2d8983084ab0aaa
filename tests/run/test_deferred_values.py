"""`deferred-values`: the same numbers later, and only where nobody can tell."""

import copy
import json
import math
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slipstream.run.deferred.uses import only_summed_and_shown
from slipstream.run.deferred.value import _MOST, Deferred, deferred
from slipstream.run.fixes import deferred_values
from tests.run.loop_kit import situation


class Device:
    """Numbers that count how often they are waited for."""

    def __init__(self) -> None:
        self.waits = 0

    def number(self, value: float) -> Deferred:
        def read() -> float:
            self.waits += 1
            return value

        return Deferred(read)


def test_sums_are_the_same_bit_for_bit_and_wait_at_the_end() -> None:
    own = random.Random(1)
    device = Device()
    total: Any = 0.0
    expected = 0.0
    for step in range(5 * _MOST):
        value = own.uniform(-1e3, 1e3)
        total += device.number(value) * 32
        expected += value * 32
        assert device.waits <= max(0, step + 1 - _MOST // 3)
    assert f"{total / 7:.17g}" == f"{expected / 7:.17g}"
    assert type(total / 7) is float


FEW = np.array([1.5, 2.5, 3.5], np.float32)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: f"{x:.3f} {x} {x!r}",
        lambda x: "{:8.2e}|{}".format(x, x),  # noqa: UP032
        lambda x: "%.4f %s" % (x, x),  # noqa: UP031
        lambda x: (x < 2, x <= 2.5, x > 3, x == 2.5, x != 2.5, bool(x)),
        lambda x: (x / 3, 3 / x, x - 1, 1 - x, x**2, x % 2, x // 2, -x, abs(x), round(x, 1)),
        lambda x: (float(x), int(x), math.exp(x), math.isnan(x), math.floor(x)),
        lambda x: np.mean([x, x * 2, 3 + x]),
        lambda x: np.array([x]).dtype,
        lambda x: json.dumps(float(x)),
        lambda x: (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)),
        lambda x: (hash(x), x.is_integer(), x.hex()),
        lambda x: sum([x, x, 1]) / 1,
        lambda x: max(x, 1.0) / 1,
        lambda x: [np.asarray(y).dtype for y in (np.float32(2) * x, x * np.float32(2), FEW / x)],
        lambda x: [np.float16(2.5) == x, x == np.float16(2.5), (x < FEW).tolist()],
        lambda x: (FEW * x).tolist() + (x - FEW).tolist(),
        lambda x: (torch.ones(2) * x + x).tolist(),
        lambda x: torch.maximum(torch.ones(1), torch.tensor(float(x))).tolist(),
    ],
)
def test_it_is_used_as_the_number(use: Any) -> None:
    assert use(deferred(torch.tensor(2.5))) == use(2.5)


def test_an_array_that_it_is_added_to_is_changed_in_place() -> None:
    total = other = np.zeros(2, np.float32)
    total += deferred(torch.tensor(2.5))
    total /= deferred(torch.tensor(2.0))
    total[0] -= deferred(torch.tensor(1.0))
    assert total is other and other.tolist() == [0.25, 1.25]


def test_a_tensor_that_it_is_added_to_is_changed_in_place() -> None:
    total = other = torch.zeros(1)
    total += deferred(torch.tensor(2.5))
    assert total is other and other.item() == 2.5


def test_the_value_is_that_of_the_call() -> None:
    tensor = torch.ones(())
    value = deferred(tensor)
    tensor.add_(1)
    assert value == 1.0
    assert deferred(torch.tensor(7)).now() == 7
    assert type(deferred(torch.tensor(7)).now()) is int
    assert deferred(torch.tensor(0.1, dtype=torch.bfloat16)).now() == 0.10009765625


FINE = {
    "printed": "print(f'{loss.item():.3f}')",
    "formatted": "print('{}'.format(loss.item()), '%f' % loss.item())",
    "summed": "total += loss.item()\n    print(total)",
    "mean returned": "total += loss.item() * len(x)\n    return total / 3",
    "named": "value = loss.item()\n    print(value)\n    total = total + value",
    "compared": "if loss.item() > 3: print('high')",
    "checked": "assert_ = math.isnan(loss.item())",
    "plain": "losses.append(float(loss.item()))",
}
NOT_FINE = {
    "returned": "return loss.item()",
    "sum returned": "total += loss.item()\n    return total",
    "kept": "losses.append(loss.item())",
    "attribute": "x.last = loss.item()",
    "entry": "x['loss'] = loss.item()",
    "tensor of the caller's": "losses += loss.item()",
    "given away": "meter.update(loss.item())",
    "in a list": "values = [loss.item()]",
    "yielded": "yield loss.item()",
    "method": "print(loss.item().hex())",
    "walrus": "print(value := loss.item())",
    "default": "value = loss.item() or 1.0\n    losses.append(value)",
    "closure": "value = loss.item()\n    later(lambda: value)",
    "global": "global total\n    total += loss.item()",
    "locals": "value = loss.item()\n    print(locals())",
    "later kept": "value = loss.item()\n    total = value + 1\n    losses.append(total)",
}


@pytest.mark.parametrize("name", [*FINE, *NOT_FINE])
def test_the_source_tells_what_becomes_of_a_value(tmp_path: Path, name: str) -> None:
    body = {**FINE, **NOT_FINE}[name]
    path = tmp_path / "source.py"
    own = "" if "global" in body else "    total = 0.0\n"
    path.write_text(f"def train(loss, x, losses, meter, later, math):\n{own}    {body}\n")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert (only_summed_and_shown(names["train"].__code__, 3) is not None) is (name in FINE)


def test_a_script_without_functions(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    source = "total = 0.0\nfor loss in losses:\n    total += loss.item()\nprint(total)\n"
    path.write_text(source)
    assert only_summed_and_shown(compile(source, str(path), "exec"), 3) == set()
    path = tmp_path / "other.py"
    source += "def report():\n    save(total)\n"
    path.write_text(source)
    assert only_summed_and_shown(compile(source, str(path), "exec"), 3) is None


def test_values_of_the_processor_are_read_at_once() -> None:
    undo = deferred_values.apply(situation())
    value = torch.tensor(2.5).item()
    print(f"{value}")
    undo()
    assert type(value) is float


def test_it_applies_where_the_loop_reads_from_a_device() -> None:
    assert deferred_values.applies(situation("Tensor.item", clock="device"))[0]
    assert not deferred_values.applies(situation("Tensor.item"))[0]
    assert not deferred_values.applies(situation(clock="device"))[0]
