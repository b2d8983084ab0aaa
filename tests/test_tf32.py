"""What a caller has set for TF32 is there again, by whichever name."""

import subprocess
import sys

import pytest

from slipstream.tf32 import tf32_settings, with_tf32

SCRIPT = """
import torch
from slipstream.tf32 import allow_tf32, restore_tf32, tf32_settings
{set}
before = tf32_settings()
kept = allow_tf32()
assert kept == before
assert tf32_settings() != before or {is_on}
restore_tf32(kept)
assert tf32_settings() == before, (tf32_settings(), before)
"""


@pytest.mark.parametrize(
    ("set_", "is_on"),
    [
        ("", False),
        ("torch.backends.cuda.matmul.allow_tf32 = True", True),
        ("torch.set_float32_matmul_precision('high')", True),
        ("torch.backends.cuda.matmul.fp32_precision = 'ieee'", False),
        ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", True),
        ("torch.backends.cudnn.conv.fp32_precision = 'ieee'", False),
        ("torch.backends.cudnn.allow_tf32 = False", False),
    ],
)
def test_it_is_put_back(set_: str, is_on: bool) -> None:
    """In a process of its own: the two names do not go together in one."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(set=set_, is_on=is_on)],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_several_at_once_leave_it_as_the_first_found_it() -> None:
    before = tf32_settings()
    first, second = with_tf32(), with_tf32()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert tf32_settings() != before
    second.__exit__(None, None, None)
    assert tf32_settings() == before
