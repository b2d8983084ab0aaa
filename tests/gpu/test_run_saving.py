"""`async-save` of tensors on a GPU: as they were when they were saved, while the loop goes on."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from slipstream.doctor.capture import Capture
from slipstream.run.fix import Situation
from slipstream.run.fixes import saving

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

BUSY = 400_000_000  # cycles: about 0.2 s
SHORT_S = 0.1
SIZE = 1 << 24  # 64 MiB


@pytest.fixture(autouse=True)
def known() -> Iterator[Situation]:
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    found = Situation({}, Capture("train.py", {}, ""))
    undo = saving.apply(found)
    yield found
    undo()
    assert found.failures == {}


@pytest.mark.parametrize("device", [f"cuda:{n}" for n in range(torch.cuda.device_count())])
@pytest.mark.parametrize("has_stream", [False, True])
def test_what_changes_later_is_not_saved(
    known: Situation, tmp_path: Path, device: str, has_stream: bool
) -> None:
    stream = torch.cuda.Stream(device) if has_stream else torch.cuda.default_stream(device)
    with torch.cuda.stream(stream):
        kept = [torch.empty(SIZE, device=device) for _ in range(2)]
        del kept  # by torch: to ask the device for memory may wait for it
        weight = torch.zeros(SIZE, device=device)
        torch.cuda._sleep(BUSY)
        weight.fill_(1)
        began = time.perf_counter()
        torch.save({"weight": weight}, tmp_path / "a.pt")
        assert time.perf_counter() - began < SHORT_S
        weight.fill_(2)
    loaded = torch.load(tmp_path / "a.pt", map_location="cpu", weights_only=True)
    assert bool((loaded["weight"] == 1).all())
    assert known.notes == {"async-save": ["files are copied, and written meanwhile"]}
    assert not known.left


def test_the_loop_goes_on_while_much_is_read_from_the_device(
    known: Situation, tmp_path: Path
) -> None:
    weight = torch.ones(16 * SIZE, device="cuda")  # 1 GiB: about half a second
    torch.cuda.synchronize()
    torch.save({"weight": weight}, tmp_path / "a.pt")
    ends = [time.perf_counter()]
    while ends[-1] - ends[0] < 0.5:
        time.sleep(0.001)
        ends.append(time.perf_counter())
    assert max(end - begin for begin, end in itertools.pairwise(ends)) < SHORT_S
    loaded = torch.load(tmp_path / "a.pt", map_location="cpu", weights_only=True)
    assert bool((loaded["weight"] == 1).all())
    assert not known.left and known.notes


def test_the_thread_keeps_to_the_devices_of_the_checkpoint(tmp_path: Path) -> None:
    """By itself it would take the first."""
    last = torch.device("cuda", torch.cuda.device_count() - 1)
    first = torch.device("cuda", 0)
    used = torch.cuda.memory_reserved(first)
    torch.save({"weight": torch.ones(SIZE, device=last)}, tmp_path / "a.pt")
    loaded = torch.load(tmp_path / "a.pt", weights_only=True)["weight"]
    assert loaded.device == last and bool((loaded == 1).all())
    assert last == first or torch.cuda.memory_reserved(first) == used
