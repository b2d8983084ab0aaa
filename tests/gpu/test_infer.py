"""Variants of a model on a real GPU."""

import threading

import pytest
import torch
from torch import nn

from slipstream.infer.change import Variant
from slipstream.infer.changes.compiled import CUDA_GRAPH
from slipstream.infer.inputs import inputs_of
from slipstream.infer.subject import Subject

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_a_graph_answers_threads_and_streams_one_after_the_other() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(512, 512), nn.ReLU())]
    model = nn.Sequential(*layers).cuda().eval()
    asked = [torch.randn(64, 512, device="cuda") for _ in range(4)]
    made = Variant().plus(CUDA_GRAPH).build(Subject(model, inputs_of(asked[0])))
    expected = [made(x).clone() for x in asked]
    wrong: list[int] = []

    def ask(number: int) -> None:
        with torch.inference_mode(), torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            for _ in range(200):
                if not torch.equal(made(asked[number]), expected[number]):
                    wrong.append(number)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
