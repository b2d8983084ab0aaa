"""What of `device-prefetch` needs no device: which tensors, which calls, and which scripts."""

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from slipstream.run.fixes import device_prefetch
from slipstream.run.fixes.device_prefetch import Delivered, wanted
from tests.run.loop_kit import same_losses, situation

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in DataLoader(data, batch_size=8):
        loss = torch.nn.functional.mse_loss(model(x.to("cpu")), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_tensors_of_batches_are_known_while_they_are_there() -> None:
    delivered = Delivered()
    batch: Any = {"x": torch.zeros(3), "more": [(torch.ones(2), "name", 3)]}
    delivered.note(batch)
    assert delivered.has(batch["x"]) and delivered.has(batch["more"][0][0])
    assert not delivered.has(torch.zeros(3)) and not delivered.has(batch["x"][:2])
    batch.clear()
    gc.collect()
    assert not delivered._versions


def test_one_that_was_written_to_is_the_scripts() -> None:
    delivered, tensor = Delivered(), torch.zeros(3)
    delivered.note([tensor])
    tensor.add_(1)
    assert not delivered.has(tensor)


@pytest.mark.parametrize(
    ("args", "kwargs", "found"),
    [
        (("cuda",), {}, (torch.device("cuda"), False)),
        ((1,), {}, (torch.device("cuda", 1), False)),
        ((), {"device": "cuda:0", "non_blocking": True}, (torch.device("cuda:0"), True)),
        ((torch.device("cuda"),), {}, (torch.device("cuda"), False)),
        (("cpu",), {}, None),
        ((torch.float16,), {}, None),
        (("cuda", torch.float16), {}, None),
        (("cuda",), {"copy": True}, None),
        (("cuda",), {"memory_format": torch.channels_last}, None),
        ((True,), {}, None),
    ],
)
def test_calls_that_it_answers(args: Any, kwargs: Any, found: Any) -> None:
    assert wanted(args, kwargs) == found


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((), {}, (torch.device("cuda"), False)),
        ((1,), {}, (torch.device("cuda", 1), False)),
        ((), {"device": 1}, (torch.device("cuda", 1), False)),
        ((), {"device": "cuda:1", "non_blocking": True}, (torch.device("cuda", 1), True)),
        ((), {"non_blocking": True}, (torch.device("cuda"), True)),
        ((), {"device": None}, None),
    ],
)
def test_cuda_goes_where_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch, args: Any, kwargs: Any, expected: Any
) -> None:
    prefetch, tensor, asked = device_prefetch._Prefetch(situation()), torch.zeros(64, 64), []
    prefetch._delivered.note([tensor])
    monkeypatch.setattr(prefetch, "_send", lambda tensor, *to_whom: asked.append(to_whom))
    prefetch.wrap_cuda(lambda tensor, *args, **kwargs: tensor)(tensor, *args, **kwargs)
    assert asked == ([] if expected is None else [expected])


def test_a_loop_on_the_processor_is_left_alone(tmp_path: Any) -> None:
    _, known = same_losses(SCRIPT, tmp_path, "device-prefetch")
    assert "device-prefetch" not in known.notes


def test_it_is_for_batches_that_go_to_a_device() -> None:
    loaders = [SimpleNamespace(kind="map", workers=2)]
    assert device_prefetch.applies(situation("Tensor.to", clock="device", loaders=loaders))[0]
    assert not device_prefetch.applies(situation("Tensor.to", loaders=loaders))[0]
    assert not device_prefetch.applies(situation("Tensor.to", clock="device"))[0]
    assert not device_prefetch.applies(situation(clock="device", loaders=loaders))[0]


def test_batches_are_noted_and_stay_what_they_are() -> None:
    undo = device_prefetch.apply(situation())
    try:
        batches = list(DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4))
    finally:
        undo()
    assert [batch[0].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
