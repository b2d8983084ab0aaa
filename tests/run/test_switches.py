"""Switches of torch: where they apply, and that all is put back."""

from typing import Any

import pytest
import torch

from slipstream.run.fixes import cudnn_benchmark, own_kernels, tf32, threads
from tests.run.loop_kit import situation

MODELS = {"models": [{"class": "Net", "convolutions": 2}]}
UNSEEN = {"models": [{"class": "Net", "convolutions": 2, "shapes": []}]}
RAGGED = {
    "models": [{"class": "Net", "convolutions": 2, "shapes": [[8, 3, n, n] for n in range(4)]}]
}


def replay(name: str, now: float, then: float, **facts: Any) -> dict[str, Any]:
    return {"name": name, "now_ms": [now] * 9, "then_ms": [then] * 9, **facts}


def test_cudnn_measures_and_stops() -> None:
    before = torch.backends.cudnn.benchmark
    undo = cudnn_benchmark.apply(situation())
    assert torch.backends.cudnn.benchmark
    undo()
    assert torch.backends.cudnn.benchmark == before


@pytest.mark.parametrize(
    ("capture", "expected"),
    [
        ({"model": MODELS, "clock": "device"}, True),
        ({"model": MODELS}, False),
        ({"model": MODELS, "clock": "device", "settings": {"cudnn_benchmark": True}}, False),
        ({"model": MODELS, "clock": "device", "settings": {"deterministic": True}}, False),
        ({"clock": "device"}, False),
        ({"model": RAGGED, "clock": "device"}, False),
        ({"model": UNSEEN, "clock": "device"}, False),
        (
            {"model": MODELS, "clock": "device", "replays": [replay("cudnn-benchmark", 1, 1.2)]},
            False,
        ),
    ],
)
def test_where_cudnn_is_to_measure(capture: dict[str, Any], expected: bool) -> None:
    assert cudnn_benchmark.applies(situation(**capture))[0] is expected


def test_the_script_may_want_the_same_every_time() -> None:
    torch.backends.cudnn.deterministic = True
    try:
        undo = cudnn_benchmark.apply(situation())
        assert not torch.backends.cudnn.benchmark
        undo()
    finally:
        torch.backends.cudnn.deterministic = False


def test_tf32_is_on_and_off_again() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    undo = tf32.apply(situation())
    assert torch.get_float32_matmul_precision() == "high"
    undo()
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


def test_where_tf32_is_to_be() -> None:
    assert tf32.applies(situation(clock="device"))[0]
    assert not tf32.applies(situation())[0]
    assert not tf32.applies(situation(clock="device", settings={"matmul_precision": "high"}))[0]
    assert not tf32.applies(situation(clock="device", replays=[replay("tf32", 1, 1.1)]))[0]


def test_threads_as_measured_whatever_the_script_asks_for() -> None:
    before = torch.get_num_threads()
    wanted = 1 if before > 1 else 2
    known = situation(replays=[replay("threads", 2, 1, threads=[before, wanted])])
    assert threads.applies(known)[0]
    undo = threads.apply(known)
    assert torch.get_num_threads() == wanted
    torch.set_num_threads(before + 1)
    assert torch.get_num_threads() == wanted
    undo()
    assert torch.get_num_threads() == before + 1  # what the script asked for
    torch.set_num_threads(before)
    assert torch.get_num_threads() == before


def test_threads_that_are_not_measured_to_be_slow_are_left_alone() -> None:
    before = torch.get_num_threads()
    known = situation(replays=[replay("threads", 1, 2, threads=[before, before + 1])])
    assert not threads.applies(known)[0]
    undo = threads.apply(known)
    assert torch.get_num_threads() == before
    undo()


class Threads(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return torch.get_num_threads()


def with_three(worker: int) -> None:
    torch.set_num_threads(3)


@pytest.mark.parametrize(("start", "expected"), [(None, 1), (with_three, 3)])
def test_workers_compute_with_as_many_as_before(start: Any, expected: int) -> None:
    before = torch.get_num_threads()
    undo = threads.apply(situation(replays=[replay("threads", 2, 1, threads=[before, 2])]))
    try:
        loader = torch.utils.data.DataLoader(Threads(), num_workers=1, worker_init_fn=start)
        assert [int(batch) for batch in loader] == [expected] * 2
        exec(compile("torch.set_num_threads(1)", "<library>", "exec"), {"torch": torch})
        assert torch.get_num_threads() == 1  # a library knows why
    finally:
        undo()
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("capture", "expected"),
    [({"model": MODELS}, True), ({"model": MODELS, "clock": "device"}, False), ({}, False)],
)
def test_where_torchs_own_kernels_are_tried(
    capture: dict[str, Any], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch._C, "_get_mkldnn_enabled", lambda: True)
    assert own_kernels.applies(situation(**capture))[0] is expected


def test_onednn_is_off_and_on_again() -> None:
    before = torch._C._get_mkldnn_enabled()
    undo = own_kernels.apply(situation())
    assert not torch._C._get_mkldnn_enabled()
    assert not own_kernels.applies(situation(model=MODELS))[0]
    undo()
    assert torch._C._get_mkldnn_enabled() == before
