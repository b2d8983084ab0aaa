"""`import slipstream`: cheap, small, documented."""

import importlib.util
import subprocess
import sys

import pytest

import slipstream
from slipstream.errors import CorruptDataset, SlipstreamError


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout


def test_importing_loads_nothing_else() -> None:
    script = """
import sys
before = set(sys.modules)
import slipstream
loaded = {name for name in set(sys.modules) - before if name.startswith("slipstream")}
heavy = {"torch", "numpy", "PIL", "rich", "typer"} & set(sys.modules)
print(sorted(loaded), sorted(heavy))
"""
    assert run(script) == "['slipstream'] []\n"


def test_names_are_sorted_and_lead_somewhere() -> None:
    assert sorted(slipstream.__all__) == slipstream.__all__
    assert set(slipstream.__all__) <= set(dir(slipstream))
    for name in slipstream.__all__:
        assert getattr(slipstream, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        slipstream.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["SlipstreamError", "Timer", "open_dataset", "pack_dataset"])
def test_names_have_a_docstring_with_an_example(name: str) -> None:
    text = getattr(slipstream, name).__doc__
    assert ">>> import" in text


# Only where torch is for CUDA: nothing else imports these.
NEEDS_TRITON = {
    f"slipstream.augment.{name}"
    for name in ("auto_fused", "auto_kernel", "flat", "flat_kernel", "fused", "kernels")
}


EXAMPLES = """
import doctest, importlib, pkgutil, sys, slipstream
ran = 0
for found in pkgutil.walk_packages(slipstream.__path__, "slipstream."):
    if found.name not in sys.argv[1:]:
        result = doctest.testmod(importlib.import_module(found.name))
        assert result.failed == 0, found.name
        ran += result.attempted
print(ran)
"""


def test_examples_in_docstrings_run() -> None:
    left_out = {"slipstream._native"}
    if importlib.util.find_spec("triton") is None:
        left_out |= NEEDS_TRITON
    # In a process of their own: some put fixes in place until it ends.
    ran = subprocess.run(
        [sys.executable, "-c", EXAMPLES, *left_out],
        check=False, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(ran.stdout) > 20


def test_version_is_a_version() -> None:
    assert slipstream.__version__.split(".")[0].split("+")[0].isdigit()


def test_errors_have_one_root_and_survive_pickling() -> None:
    import pickle

    error = CorruptDataset("bad", where="here", got=1, expected=2, do="Repair it.")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, SlipstreamError)
    assert str(again) == str(error) == "here: bad: got 1, expected 2. Repair it."
    assert (again.what, again.where, again.got, again.expected) == ("bad", "here", "1", "2")
    # torch's loader rebuilds a worker's error from its message alone.
    assert isinstance(CorruptDataset("any message"), SlipstreamError)
