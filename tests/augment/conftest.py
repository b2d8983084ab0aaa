"""The transforms under test: stand-ins everywhere, torchvision's own where it is installed."""

import warnings
from types import SimpleNamespace

import pytest

from tests.augment import standins


@pytest.fixture(params=["stand-ins", "torchvision"])
def lib(request: pytest.FixtureRequest) -> SimpleNamespace:
    """Both generations, `v1` and `v2`, the InterpolationMode and the evaluation `preset`."""
    if request.param == "stand-ins":
        return SimpleNamespace(
            v1=standins.v1,
            v2=standins.v2,
            InterpolationMode=standins.InterpolationMode,
            preset=standins.preset,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torchvision's own imports
        reason = "torchvision is not installed: its transforms are compared where it is"
        v1 = pytest.importorskip("torchvision.transforms", reason=reason)
        v2 = pytest.importorskip("torchvision.transforms.v2", reason=reason)
        from torchvision.transforms._presets import ImageClassification
    return SimpleNamespace(
        v1=v1, v2=v2, InterpolationMode=v1.InterpolationMode, preset=ImageClassification
    )
