"""torchvision's transforms of colours become the steps of our own, or run as given."""

import enum
import warnings
from typing import Any

import pytest
import torch

from slipstream.augment import (
    ColorJitter,
    GaussianBlur,
    PILToTensor,
    RandAugment,
    RandomErasing,
    RandomGrayscale,
    ToTensor,
    TrivialAugmentWide,
)
from slipstream.augment.finish import Finish
from slipstream.augment.lowering import lower
from tests.augment.standins import V1, V2


class Mode(enum.Enum):
    NEAREST = "nearest"
    BILINEAR = "bilinear"


AUTO = {"num_magnitude_bins": 31, "interpolation": Mode.NEAREST, "fill": None}
ERASING = {"p": 0.4, "scale": (0.1, 0.2), "ratio": [0.5, 2.0], "value": [1.0]}
# Name: modules of both generations, torchvision's attributes, our transform.
SAME: dict[str, tuple[str, str, dict[str, Any], Any]] = {
    "ColorJitter": (
        V1, f"{V2}._color",
        {"brightness": (0.5, 1.5), "contrast": None, "saturation": [0.0, 3.0], "hue": (-0.1, 0.1)},
        ColorJitter(0.5, 0.0, (0.0, 3.0), 0.1),
    ),
    "RandomGrayscale": (V1, f"{V2}._color", {"p": 0.25}, RandomGrayscale(0.25)),
    "GaussianBlur": (
        V1, f"{V2}._misc", {"kernel_size": (5, 3), "sigma": [0.1, 2.0]}, GaussianBlur((5, 3)),
    ),
    "RandomErasing": (
        V1, f"{V2}._augment", ERASING, RandomErasing(0.4, (0.1, 0.2), (0.5, 2.0), 1.0),
    ),
    "RandAugment": (
        f"{V1.rpartition('.')[0]}.autoaugment", f"{V2}._auto_augment",
        {"num_ops": 3, "magnitude": 7, **AUTO}, RandAugment(3, 7),
    ),
    "TrivialAugmentWide": (
        f"{V1.rpartition('.')[0]}.autoaugment", f"{V2}._auto_augment", AUTO, TrivialAugmentWide(),
    ),
}  # fmt: skip


def stand_in(name: str, generation: int, **changes: Any) -> Any:
    module, attributes = SAME[name][generation], SAME[name][2]
    made = type(name, (), {"__module__": module, "__call__": lambda self, picture: picture})()
    vars(made).update({**attributes, **changes})
    return made


def theirs(name: str, generation: int) -> Any:
    reason = "torchvision is not installed: its transforms are lowered where it is"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torchvision's own imports
        module = "torchvision.transforms" + ("", ".v2")[generation]
        library = pytest.importorskip(module, reason=reason)
    arguments: dict[str, dict[str, Any]] = {
        "ColorJitter": {"brightness": 0.5, "saturation": (0.0, 3.0), "hue": 0.1},
        "GaussianBlur": {"kernel_size": (5, 3)},
        "RandAugment": {"num_ops": 3, "magnitude": 7},
        "RandomErasing": {**ERASING, "value": 1.0},
        "RandomGrayscale": {"p": 0.25},
        "TrivialAugmentWide": {},
    }
    return getattr(library, name)(**arguments[name])


@pytest.mark.parametrize("make", [stand_in, theirs])
@pytest.mark.parametrize("generation", [0, 1], ids=["v1", "v2"])
@pytest.mark.parametrize("name", SAME)
def test_the_same_step_as_ours(name: str, generation: int, make: Any) -> None:
    transform = make(name, generation)
    lowered, ours = (
        lower([PILToTensor(), t], exact=False) for t in (transform, SAME[name][3])
    )  # fmt: skip
    assert not lowered.rest and lowered.stages == ours.stages
    (note,) = lowered.notes
    assert name in note and "our random numbers" in note and not ours.notes
    exact = lower([PILToTensor(), transform], exact=True)
    assert exact.rest == (transform,) and exact.why == "draws and rounds in its own way"


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("RandAugment", {"interpolation": Mode.BILINEAR}, "interpolation 'bilinear'"),
        ("RandAugment", {"fill": [128.0]}, "another colour"),
        ("RandAugment", {"magnitude": 40}, "magnitude 40"),
        ("TrivialAugmentWide", {"num_magnitude_bins": 1}, "num_magnitude_bins 1"),
        ("RandomErasing", {"value": "random"}, "value 'random'"),
        ("RandomErasing", {"value": None}, "value None"),
        ("RandomErasing", {"value": [1.0, 2.0]}, "neither one number nor three"),
        ("GaussianBlur", {"sigma": (0.0, 1.0)}, "not above 0"),
        ("ColorJitter", {"hue": (-0.9, 0.1)}, "hue"),
        ("RandomGrayscale", {"p": torch.tensor(0.5)}, "p tensor"),
    ],
)
def test_what_stays_as_given(name: str, changes: dict[str, Any], why: str) -> None:
    lowered = lower([PILToTensor(), stand_in(name, 0, **changes)], exact=False)
    assert lowered.rest and why in lowered.why


def test_torchvisions_erasing_wants_a_tensor() -> None:
    transform = stand_in("RandomErasing", 0)
    assert "wants a tensor" in lower([transform, ToTensor()], exact=False).why


def test_another_version_of_torchvision() -> None:
    transform = stand_in("ColorJitter", 1)
    del transform.hue
    assert "in this version" in lower([transform], exact=False).why


def test_a_subclass_is_not_known() -> None:
    class Mine(ColorJitter):
        pass

    assert lower([Mine(0.4)], exact=False).why == "not known to the engine"


def test_floats_between_stages_are_float32_and_the_end_says_what_comes_out() -> None:
    lowered = lower(
        [ToTensor(torch.float16, torch.channels_last), GaussianBlur(3), RandomGrayscale()],
        exact=True,
    )
    assert lowered.finish == Finish("float", "divide", planar=True)
    assert lowered.result.dtype == torch.float16 and lowered.result.channels_last
    assert lowered.result.scale == "none" and lowered.result.kind == "float"
