"""Chains in one kernel, run by Triton's interpreter where there is no GPU: in a process of its own,
which has to be told before Triton is imported.
"""

import importlib.util
import os
import subprocess
import sys

import pytest

PROGRAM = """
import itertools
import numpy as np
import torch
from slipstream.augment.batch_steps import Erase, Grayscale, Jitter
from slipstream.augment.chain import apply_chain
from slipstream.augment.finish import Finish
from slipstream.augment.fused import can_fuse, run_chain

count, height, width = 7, 13, 17
pixels = torch.from_numpy(
    np.random.default_rng(0).integers(0, 256, (count, 3, height, width), dtype=np.uint8)
)
pixels[1] = pixels[1, :1]  # grey: without a hue

def random(op, blocks):
    return np.random.default_rng(op).integers(0, 1 << 32, (count, 4 * blocks), dtype=np.uint32)

jitter = Jitter(((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1)), 0)
bright = Jitter(((0.5, 1.5), None, None, None), 1)
grey, erase = Grayscale(0.5, 2), Erase(1.0, (0.1, 0.3), (0.3, 3.3), (7.0, 0.0, 200.0), 3)
floats = Finish("float", "divide", (((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),))
bytes_ = Finish("uint8")
chains = [[floats], [jitter, floats], [bright, bytes_], [jitter, grey, floats, erase],
          [erase, jitter, grey, bytes_], [grey, bytes_]]
formats = [torch.contiguous_format, torch.channels_last]
for stages, format_, source in itertools.product(chains, formats, formats):
    links = [(s, {} if isinstance(s, Finish) else s.draw(random, height, width)) for s in stages]
    own = pixels.contiguous(memory_format=source)
    types = [torch.uint8] if floats not in stages else [torch.float32, torch.float16]
    assert can_fuse(own, links)
    for dtype in types:
        expected = apply_chain(own, links, dtype=dtype, memory_format=format_)
        got = run_chain(own, links, dtype=dtype, memory_format=format_)
        assert got.dtype == dtype and got.stride() == expected.stride()
        assert torch.equal(got, expected), stages

assert not can_fuse(pixels.float(), [(floats, {})])
assert not can_fuse(pixels, [(floats, {}), (jitter, {})])
assert not can_fuse(pixels, [(jitter, {}), (jitter, {})])
print("the same")
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_results_are_those_of_the_steps_one_by_one() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "the same\n", done.stderr
