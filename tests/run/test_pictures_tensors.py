"""ToTensor and Normalize in one pass: the same bits, and nothing else is touched."""

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from slipstream.run.pictures import tensors
from tests.augment import standins
from tests.run.pictures_kit import FILES, late_pictures, open_bytes

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture
def lib(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """torchvision's modules, as far as this looks at them: each Compose has its own method."""
    first, second = ModuleType(standins.V1), ModuleType(f"{standins.V2}._container")

    class Compose(standins.Compose):
        def __call__(self, picture: Any) -> Any:
            for transform in self.transforms:
                picture = transform(picture)
            return picture

    class Compose2(torch.nn.Module):
        def __init__(self, transforms: Any) -> None:
            super().__init__()
            self.transforms = transforms

        def forward(self, *inputs: Any) -> Any:
            sample = inputs if len(inputs) > 1 else inputs[0]
            for transform in self.transforms:
                sample = transform(sample)
            return sample

    for module, kind in ((first, Compose), (second, Compose2)):
        kind.__module__, kind.__qualname__, kind.__name__ = module.__name__, "Compose", "Compose"
        module.Compose = kind  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    yield SimpleNamespace(v1=Compose, v2=Compose2)


class Seen:
    """A transform that notes what it gets."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def __call__(self, value: Any) -> Any:
        self.values.append(type(value))
        return value


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if (one.dtype, one.shape, one.stride()) != (other.dtype, other.shape, other.stride()):
        return False
    return one.contiguous().numpy().tobytes() == other.contiguous().numpy().tobytes()


def fused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many transforms each call did at once."""
    done: list[int] = []
    original = tensors._tensor

    def watched(*args: Any) -> Any:
        result = original(*args)
        done.append(result[1])
        return result

    monkeypatch.setattr(tensors, "_tensor", watched)
    return done


@pytest.mark.parametrize("generation", ["v1", "v2"])
@pytest.mark.parametrize("name", ["4:2:0", "gray", "progressive", "one pixel", "cmyk"])
@pytest.mark.parametrize("tail", ["ToTensor", "Normalize", "one mean"])
def test_same_bits(
    lib: SimpleNamespace, generation: str, name: str, tail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = Seen()
    steps: list[Any] = [standins.v1.Resize((31, 40)), standins.v1.ToTensor()]
    if tail != "ToTensor":
        steps.append(
            standins.v1.Normalize(*((MEAN, STD) if tail == "Normalize" else ((0.5,), [0.25])))
        )
    compose = getattr(lib, generation)([*steps, last])
    want = compose(open_bytes(FILES[name]).convert("RGB"))
    done = fused(monkeypatch)
    with late_pictures():
        found = compose(open_bytes(FILES[name]).convert("RGB"))
        assert done == [len(steps) - 1]
        plain = compose(Image.fromarray(np.asarray(open_bytes(FILES[name]).convert("RGB"))))
    assert same(found, want) and same(plain, want)
    assert last.values == [torch.Tensor] * 3


def test_not_fused(lib: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be something else runs as it is."""

    class Own(standins.v1.Normalize):  # type: ignore[name-defined,misc]
        pass

    class OwnTensor(standins.v1.ToTensor):  # type: ignore[name-defined,misc]
        pass

    class OwnCompose(lib.v1):  # type: ignore[name-defined,misc]
        pass

    to_tensor, normalize = standins.v1.ToTensor(), standins.v1.Normalize(MEAN, STD)
    hooked = standins.v1.Normalize(MEAN, STD)
    hooked._forward_hooks = {0: print}
    cases = {
        "hooks": (lib.v1([to_tensor, hooked]), [0]),
        "own Normalize": (lib.v1([to_tensor, Own(MEAN, STD)]), [1]),
        "own ToTensor": (lib.v1([OwnTensor(), normalize]), []),
        "own Compose": (OwnCompose([to_tensor, normalize]), []),
        "tensors as values": (
            lib.v1([to_tensor, standins.v1.Normalize(torch.tensor(MEAN), STD)]), [0],
        ),
        "an array": (lib.v1([np.asarray, to_tensor, normalize]), [0]),
        "no tensor": (lib.v1([]), []),
    }  # fmt: skip
    for name, (compose, expected) in cases.items():
        picture = open_bytes(FILES["4:4:4"]).convert("RGB")
        want = compose(picture)
        with late_pictures(), monkeypatch.context() as context:
            done = fused(context)
            found = compose(open_bytes(FILES["4:4:4"]).convert("RGB"))
            assert done == expected, name
        if name == "no tensor":
            found, want = torch.from_numpy(np.array(found)), torch.from_numpy(np.array(want))
        assert same(found, want), name


def test_gray_and_other_dtypes(lib: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    done = fused(monkeypatch)
    compose = lib.v1([standins.v1.ToTensor(), standins.v1.Normalize(MEAN, STD)])
    torch.set_default_dtype(torch.float64)
    try:
        want = compose(open_bytes(FILES["4:4:4"]))
        with late_pictures():
            assert same(compose(open_bytes(FILES["4:4:4"])), want)
    finally:
        torch.set_default_dtype(torch.float32)
    with late_pictures(), pytest.raises(RuntimeError):
        compose(open_bytes(FILES["gray"]))  # the stand-in wants three channels
    assert done == [0, 0]


def test_values_may_change(lib: SimpleNamespace) -> None:
    normalize = standins.v1.Normalize(list(MEAN), list(STD))
    compose = lib.v1([standins.v1.ToTensor(), normalize])
    with late_pictures():
        compose(open_bytes(FILES["4:4:4"]))
        normalize.mean[0] = 0.1
        found = compose(open_bytes(FILES["4:4:4"]))
    assert same(found, compose(open_bytes(FILES["4:4:4"])))


def test_errors_come_once(lib: SimpleNamespace) -> None:
    calls = []

    def fails(picture: Any) -> Any:
        calls.append(picture)
        raise KeyError("mine")

    compose = lib.v1([fails, standins.v1.ToTensor(), standins.v1.Normalize(MEAN, STD)])
    with late_pictures(), pytest.raises(KeyError, match="mine"):
        compose(open_bytes(FILES["4:4:4"]))
    assert len(calls) == 1


def test_several_inputs_and_undo(lib: SimpleNamespace) -> None:
    original = lib.v2.forward
    compose = lib.v2([lambda sample: sample])
    with late_pictures():
        open_bytes(FILES["4:4:4"])
        assert lib.v2.forward is not original
        assert compose(1, 2) == (1, 2)
    assert lib.v2.forward is original
