"""Bytes to floats by one multiply-add: only where every byte's bits are those of the table."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from slipstream.augment.affine import exact_affine, fused_multiply_add
from slipstream.augment.finish import Finish

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def rounded(exact: Fraction) -> np.float32:
    """The float32 next to a number, of two equally near ones the even one."""
    guess = np.float32(float(exact))
    near = [np.nextafter(guess, np.float32(side)) for side in (-np.inf, np.inf)]
    return min(
        [guess, *near],
        key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.int32)) % 2),
    )


def test_rounded_once() -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((3, 2000)).astype(np.float32)
    c[::2] *= np.float32(2.0) ** rng.integers(-60, 60, 1000)
    # Half-way between two floats but for a bit that float64 has no room for.
    a[0], b[0], c[0] = 1 + 2**-12, 1 + 2**-12, 2.0**-70
    a[1], b[1], c[1] = 1 + 2**-12, 1 + 2**-12, -(2.0**-70)
    got = fused_multiply_add(*(x.astype(np.float64) for x in (a, b, c)))
    for x, y, z, value in zip(a, b, c, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert value == rounded(exact)
    assert got[0] != got[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("normalize", [(), (IMAGENET,), (((0.5,), (0.5,)), IMAGENET)])
def test_halves_have_the_bits_of_the_table(
    dtype: torch.dtype, normalize: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]
) -> None:
    finish = Finish("float", "divide", normalize)
    pairs = exact_affine(finish, dtype)
    table = finish.table()
    assert pairs is not None and table is not None
    for channel, (scale, shift) in enumerate(pairs):
        assert scale == np.float32(scale) and shift == np.float32(shift)
        for byte in range(256):
            exact = byte * Fraction(scale) + Fraction(shift)
            value = torch.tensor(float(rounded(exact))).to(dtype)
            assert torch.equal(value, table[channel, byte].to(dtype))


def test_where_there_is_none_the_table_stays() -> None:
    assert exact_affine(Finish("float", "divide", (IMAGENET,)), torch.float32) is None
    assert exact_affine(Finish("uint8"), torch.float16) is None
