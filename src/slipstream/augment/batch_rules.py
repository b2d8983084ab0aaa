"""Which steps on whole batches our own transforms are, and torchvision's of the same names."""

from collections.abc import Callable, Sequence
from typing import Any

from slipstream.augment.auto_augment import RAND_AUGMENT, TRIVIAL_AUGMENT, AutoAugment
from slipstream.augment.batch_steps import BatchStep, Blur, Erase, Grayscale, Jitter, Range
from slipstream.augment.draft import (
    Draft,
    NotLowered,
    Rule,
    as_number,
    as_probability,
    as_range,
    as_side,
)
from slipstream.augment.mixing import Cut, Mix

Maker = Callable[[Any, int], BatchStep]


def jitter(transform: Any, op: int) -> Jitter:
    """The step of ColorJitter."""
    brightness, contrast, saturation = (
        _around_one(getattr(transform, name), name)
        for name in ("brightness", "contrast", "saturation")
    )
    return Jitter((brightness, contrast, saturation, _hue(transform.hue)), op)


def grayscale(transform: Any, op: int) -> Grayscale:
    """The step of RandomGrayscale."""
    return Grayscale(as_probability(transform.p), op)


def blur(transform: Any, op: int) -> Blur:
    """The step of GaussianBlur."""
    size = transform.kernel_size
    sides = tuple(size) if isinstance(size, Sequence) else (size, size)
    if len(sides) != 2:
        raise NotLowered(f"kernel_size {size!r} is not a number or (width, height)")
    across, down = as_side(sides[0]), as_side(sides[1])
    if across % 2 == 0 or down % 2 == 0:
        raise NotLowered(f"kernel_size {size!r} is not odd")
    sigma = transform.sigma
    low, high = as_range(sigma if isinstance(sigma, Sequence) else (sigma, sigma), "sigma")
    if low <= 0:
        raise NotLowered(f"sigma {sigma!r} is not above 0")
    return Blur((across, down), (low, high), op)


def erase(transform: Any, op: int) -> Erase:
    """The step of RandomErasing."""
    scale, ratio = as_range(transform.scale, "scale"), as_range(transform.ratio, "ratio")
    if scale[1] > 1:
        raise NotLowered(f"scale {scale} is not within 0 to 1")
    if ratio[0] <= 0:
        raise NotLowered(f"ratio {ratio} is not above 0")
    value = transform.value
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(values) not in (1, 3):
        raise NotLowered(f"value {value!r} is neither one number nor three")
    numbers = [as_number(entry, "value") for entry in values]
    red, green, blue = numbers if len(numbers) == 3 else numbers * 3
    return Erase(as_probability(transform.p), scale, ratio, (red, green, blue), op)


def rand_augment(transform: Any, op: int) -> AutoAugment:
    """The step of RandAugment."""
    bins = _bins(transform)
    magnitude, count = transform.magnitude, transform.num_ops
    if not isinstance(magnitude, int) or not 0 <= magnitude < bins:
        raise NotLowered(f"magnitude {magnitude!r} is not a whole number from 0 to {bins - 1}")
    if not isinstance(count, int) or count < 1:
        raise NotLowered(f"num_ops {count!r} is not a whole number from 1")
    return AutoAugment(RAND_AUGMENT, count, magnitude, bins, op)


def trivial_augment(transform: Any, op: int) -> AutoAugment:
    """The step of TrivialAugmentWide."""
    return AutoAugment(TRIVIAL_AUGMENT, 1, None, _bins(transform), op)


def mix(transform: Any, op: int) -> Mix:
    """The step of Mixup."""
    return Mix(*_mixture(transform), op)


def cut(transform: Any, op: int) -> Cut:
    """The step of CutMix."""
    return Cut(*_mixture(transform), op)


def _mixture(transform: Any) -> tuple[float, int, str]:
    alpha, classes = as_number(transform.alpha, "alpha"), transform.num_classes
    if alpha <= 0:
        raise NotLowered(f"alpha {alpha} is not above 0")
    if not isinstance(classes, int) or classes < 2:
        raise NotLowered(f"num_classes {classes!r} is not a whole number from 2")
    return alpha, classes, transform.label


def _around_one(value: Any, name: str) -> Range | None:
    if value is None:
        return None
    if not isinstance(value, Sequence):
        amount = as_number(value, name)
        value = (max(0.0, 1 - amount), 1 + amount)
        if amount < 0:
            raise NotLowered(f"{name} {amount} is below 0")
    low, high = as_range(value, name)
    return None if low == high == 1 else (low, high)


def _hue(value: Any) -> Range | None:
    if value is None:
        return None
    ends = value if isinstance(value, Sequence) else (-as_number(value, "hue"), value)
    if len(ends) != 2:
        raise NotLowered(f"hue {value!r} is not a number or (min, max)")
    low, high = as_number(ends[0], "hue"), as_number(ends[1], "hue")
    if not -0.5 <= low <= high <= 0.5:
        raise NotLowered(f"hue {value!r} is not within -0.5 to 0.5")
    return None if low == high == 0 else (low, high)


def _bins(transform: Any) -> int:
    """How many strengths there are. torchvision's have more settings than ours."""
    bins = transform.num_magnitude_bins
    if not isinstance(bins, int) or bins < 2:
        raise NotLowered(f"num_magnitude_bins {bins!r} is not a whole number from 2")
    mode = getattr(transform, "interpolation", "nearest")
    if getattr(mode, "value", mode) != "nearest":
        raise NotLowered(f"interpolation {getattr(mode, 'value', mode)!r}, not the nearest pixel")
    if getattr(transform, "fill", None) not in (None, 0):
        raise NotLowered("fills with another colour than black")
    return bins


def _ours(make: Maker) -> Rule:
    def rule(draft: Draft, transform: Any, op: int) -> tuple[Draft, str]:
        step = make(transform, op)
        if isinstance(step, Mix) and draft.finish.kind != "float":
            raise NotLowered("mixes floats, and pictures are bytes before ToTensor")
        _check_bytes(draft, step)
        return draft.add_batch_step(step), _shown(transform)

    return rule


def _theirs(make: Maker, *, wants_tensor: bool = False) -> Rule:
    def rule(draft: Draft, transform: Any, op: int) -> tuple[Draft, str]:
        if draft.exact:
            raise NotLowered("draws and rounds in its own way")
        if wants_tensor and not draft.is_tensor:
            raise NotLowered("wants a tensor, but the picture is none yet")
        step, name = make(transform, op), _shown(transform)
        _check_bytes(draft, step)
        note = f"{name} has our random numbers and the rounding of torchvision's tensors"
        return draft.add_batch_step(step, note), name

    return rule


def _check_bytes(draft: Draft, step: BatchStep) -> None:
    if not isinstance(step, Erase) or draft.finish.kind == "float":
        return
    if not all(0 <= number <= 255 for number in step.value):
        raise NotLowered(
            f"fills with {step.value}, and pictures are bytes from 0 to 255 before ToTensor"
        )


def _shown(transform: Any) -> str:
    name = type(transform).__name__
    return f"{name}(p={transform.p:g})" if hasattr(transform, "p") else name


_OURS = "slipstream.augment.batch_ops."
_V1, _V2 = "torchvision.transforms.", "torchvision.transforms.v2."
BATCH_RULES: dict[str, Rule] = {
    f"{_OURS}ColorJitter": _ours(jitter),
    f"{_OURS}CutMix": _ours(cut),
    f"{_OURS}GaussianBlur": _ours(blur),
    f"{_OURS}Mixup": _ours(mix),
    f"{_OURS}RandAugment": _ours(rand_augment),
    f"{_OURS}RandomErasing": _ours(erase),
    f"{_OURS}RandomGrayscale": _ours(grayscale),
    f"{_OURS}TrivialAugmentWide": _ours(trivial_augment),
    f"{_V1}autoaugment.RandAugment": _theirs(rand_augment),
    f"{_V1}autoaugment.TrivialAugmentWide": _theirs(trivial_augment),
    f"{_V1}transforms.ColorJitter": _theirs(jitter),
    f"{_V1}transforms.GaussianBlur": _theirs(blur),
    f"{_V1}transforms.RandomErasing": _theirs(erase, wants_tensor=True),
    f"{_V1}transforms.RandomGrayscale": _theirs(grayscale),
    f"{_V2}_augment.RandomErasing": _theirs(erase, wants_tensor=True),
    f"{_V2}_auto_augment.RandAugment": _theirs(rand_augment),
    f"{_V2}_auto_augment.TrivialAugmentWide": _theirs(trivial_augment),
    f"{_V2}_color.ColorJitter": _theirs(jitter),
    f"{_V2}_color.RandomGrayscale": _theirs(grayscale),
    f"{_V2}_misc.GaussianBlur": _theirs(blur),
}
