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
from triton.runtime import interpreter
from slipstream.augment import auto_fused, flat, fused
from slipstream.augment.affine import fused_multiply_add
from slipstream.augment.auto_augment import NAMES, TRIVIAL_AUGMENT, AutoAugment
from slipstream.augment.batch_steps import Erase, Grayscale, Jitter, Mirror
from slipstream.augment.chain import apply_chain
from slipstream.augment.finish import Finish
from slipstream.augment.fused import can_fuse, run_chain

def fma(self, x, y, z):  # older interpreters round twice
    numbers = (np.asarray(part.data, np.float64) for part in (x, y, z))
    return interpreter.TensorHandle(fused_multiply_add(*numbers), z.dtype.scalar)

interpreter.InterpreterBuilder.create_fma = fma
flat.BLOCK = fused.BLOCK = auto_fused.BLOCK = auto_fused.TABLE_BLOCK = 128  # several a picture

def random(count):
    return lambda op, blocks: np.random.default_rng(op).integers(
        0, 1 << 32, (count, 4 * blocks), dtype=np.uint32
    )

def drawn(stage, count, height, width):
    if isinstance(stage, Mirror):
        return {"flips": torch.arange(count, dtype=torch.uint8) % 4}
    return {} if isinstance(stage, Finish) else stage.draw(random(count), height, width)

def check(pixels, stages, dtype, format_):
    count, _, height, width = pixels.shape
    links = [(stage, drawn(stage, count, height, width)) for stage in stages]
    assert can_fuse(pixels, links)
    expected = apply_chain(pixels, links, dtype=dtype, memory_format=format_)
    got = run_chain(pixels, links, dtype=dtype, memory_format=format_)
    assert got.dtype == dtype and got.stride() == expected.stride()
    assert torch.equal(got, expected), (stages, dtype, format_, pixels.shape, pixels.stride())

def sources(count, height, width):
    whole = torch.from_numpy(np.random.default_rng(0).integers(
        0, 256, (count, 3, height + 2, width + 3), dtype=np.uint8
    ))
    part = whole[:, :, 1:-1, 2:-1]
    part[count // 2] = part[count // 2, :1]  # grey: without a hue
    return [part, part.contiguous(), part.contiguous(memory_format=torch.channels_last)]

jitter = Jitter(((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1)), 0)
bright = Jitter(((0.5, 1.5), None, None, None), 1)
grey, erase = Grayscale(0.5, 2), Erase(1.0, (0.1, 0.3), (0.3, 3.3), (7.0, 0.0, 200.0), 3)
floats = Finish("float", "divide", (((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),))
bytes_, mirror, done = Finish("uint8"), Mirror(), Finish("float")
formats = [torch.contiguous_format, torch.channels_last]

flat_chains = [[floats], [mirror, floats, done], [mirror, bytes_]]
for stages, size, format_ in itertools.product(
    flat_chains, [(4, 15, 9), (4, 6, 24), (3, 1, 1), (4, 3, 1)], formats
):
    for source in sources(*size):
        check(source, stages, torch.float16 if floats in stages else torch.uint8, format_)

chains = [[jitter, floats], [mirror, bright, bytes_], [mirror, jitter, grey, floats, erase, done],
          [erase, jitter, grey, bytes_], [grey, floats, erase], [floats, erase, done]]
for stages, format_ in itertools.product(chains, formats):
    for source in sources(4, 11, 13):
        check(source, stages, torch.float16 if floats in stages else torch.uint8, format_)
# Looked up: no multiplication and addition gives these.
for stages, source in itertools.product([[mirror, floats], [jitter, floats]], sources(4, 11, 13)):
    check(source, stages, torch.float32, torch.channels_last)

pixels = sources(2, 3, 3)[0]
assert not can_fuse(pixels.float(), [(floats, {})])
for unknown in ([floats, jitter], [jitter, jitter], [grey, mirror], [floats, erase, floats],
                [erase, floats, erase]):
    assert not can_fuse(pixels, [(stage, {}) for stage in unknown]), unknown

# Every change, weak and strong, there and back; then another one.
step = AutoAugment(TRIVIAL_AUGMENT, 2, None, 31, 0)
first = np.concatenate([62 * np.arange(1, 14) + k for k in (0, 27, 60, 61)])
choice = np.stack([first, np.random.default_rng(1).permutation(first)], axis=1)
for size, own in itertools.product([(11, 13), (2, 5), (1, 1)], range(3)):
    source = sources(len(choice), *size)[own]
    source[::3] = source[::3] // 4 + 50
    rows = slice(own if size == (11, 13) else 9 * own, None, 3 if size == (11, 13) else 9)
    source, drawn = source[rows], step.chosen(choice[rows], *size)
    expected = step.apply(source, drawn)
    got = auto_fused.run_changes(source, drawn, TRIVIAL_AUGMENT, 31)
    assert got.stride() == expected.stride()
    for k, turns in enumerate(drawn["which"].tolist()):
        assert torch.equal(got[k], expected[k]), ([NAMES[which] for which in turns], own, size)
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
