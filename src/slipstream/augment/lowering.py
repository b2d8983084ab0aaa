"""A torchvision pipeline, lowered: the part the native engine does, and the part that stays."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from slipstream.augment.auto_augment import AutoAugment
from slipstream.augment.batch import draw_batch, planes_of
from slipstream.augment.batch_steps import Mirror
from slipstream.augment.chain import Stage
from slipstream.augment.draft import Draft, NotLowered
from slipstream.augment.finish import Finish
from slipstream.augment.followers import Followers
from slipstream.augment.geometry import Geometry, no_random
from slipstream.augment.mixing import Mixing
from slipstream.augment.rules import is_compose, qualified_name, rule_for
from slipstream.augment.steps import Random
from slipstream.errors import UsageError

_UNKNOWN = "not known to the engine"
_V1 = "torchvision.transforms.transforms."


@dataclass(frozen=True)
class Lowered:
    """A pipeline in three parts: `geometry` and `finish` for the engine, picture by picture;
    `stages` that run on whole batches behind them; `rest` to run as given.

    `stages` are empty, or they begin with the first transform that runs on batches and end with a
    `Finish`. `rest` starts at the first transform that cannot be lowered, and `why` says why it
    cannot (it is empty if all of them are lowered). `lowered` names those of the engine, `batched`
    those of `stages`. `notes` says what differs from the pipeline as given; it is empty with
    exact=True. `followers` are the fields that move with the pictures.
    """

    geometry: Geometry = field(default_factory=Geometry)
    finish: Finish = field(default_factory=Finish)
    stages: tuple[Stage, ...] = ()
    rest: tuple[Callable[..., Any], ...] = ()
    lowered: tuple[str, ...] = ()
    batched: tuple[str, ...] = ()
    why: str = ""
    notes: tuple[str, ...] = ()
    followers: Followers = field(default_factory=Followers)

    @property
    def result(self) -> Finish:
        """What comes out of the engine and of the batches' stages."""
        last = self.stages[-1] if self.stages else self.finish
        assert isinstance(last, Finish)
        return last

    def late_flips(self, random: Random, count: int) -> npt.NDArray[np.uint8]:
        """Flips of `count` pictures that come behind the geometry, uint8[N] as in `Windows`."""
        flips = np.zeros(count, dtype=np.uint8)
        for stage in self.stages:
            if isinstance(stage, Mirror):
                flips ^= stage.draw(random, 0, 0)["flips"].numpy()
        return flips

    @property
    def mixes(self) -> bool:
        """Whether pictures of a batch are mixed with each other."""
        return any(isinstance(stage, Mixing) for stage in self.stages)

    def complete(self, pixels: npt.NDArray[np.uint8], random: Random = no_random) -> Any:
        """What the pipeline gives for the engine's uint8[H, W, 3] of one sample: finished, through
        `stages` with this sample's random words, then through `rest`. Where `rest` starts before
        the picture becomes a tensor it gets a Pillow picture; where nothing makes a tensor of it
        and there is no `rest`, the pixels come back.

        >>> lower(None, exact=True).complete(np.zeros((2, 4, 3), np.uint8)).shape
        (2, 4, 3)
        """
        value: Any = self.finish.apply(pixels)
        if self.stages:
            value = self._run_stages(torch.as_tensor(value), random)
        if not self.rest:
            return value
        is_array = self.result.kind == "array"
        value = Image.fromarray(value) if is_array else self.result.wrap(value)
        for transform in self.rest:
            value = transform(value)
        return value

    def _run_stages(self, picture: torch.Tensor, random: Random) -> Any:
        planes = planes_of(picture.unsqueeze(0), self.finish.kind)
        drawn = draw_batch(self.stages, random, planes.shape[2], planes.shape[3])
        value = drawn.run(planes)[0]
        return value.numpy() if self.result.kind == "array" else value

    def describe(self) -> str:
        """What runs where, in a line; a second one for the notes, if there are any.

        >>> lower([abs], exact=True).describe()
        'engine: decode; as given: abs (not known to the engine)'
        """
        text = f"engine: {', '.join(self.lowered) or 'decode'}"
        if self.batched:
            text += f"; on whole batches: {', '.join(self.batched)}"
        if self.rest:
            first, *others = (_name(transform) for transform in self.rest)
            text += f"; as given: {', '.join([f'{first} ({self.why})', *others])}"
        if self.followers:
            text += f"; {self.followers.describe()}"
        return "\n".join([text, *([f"note: {'; '.join(self.notes)}"] if self.notes else [])])


def lower(transform: object, *, exact: bool) -> Lowered:
    """Split a pipeline into what the engine does and what runs as given.

    `transform` is a torchvision Compose (either generation, nested or not), one transform, a list
    or tuple of them, or None. With `exact` the result is bit for bit what the pipeline makes of
    the Pillow picture, given the same random numbers; without it a resize that torchvision would
    run on a tensor is lowered too, with Pillow's pixels, and so are torchvision's transforms of
    colours, and a note says so. torchvision is not imported, and need not be installed. Raises
    `UsageError` for what cannot be run at all.

    >>> from slipstream.augment import ColorJitter, Resize, ToTensor
    >>> lower([Resize(8), ColorJitter(0.5), ToTensor()], exact=True).describe()
    'engine: Resize(8); on whole batches: ColorJitter, ToTensor'
    """
    pipeline = list(_flatten(transform))
    draft, why = Draft(exact), ""
    engine: list[str] = []
    batched: list[str] = []
    for op, item in enumerate(pipeline):
        before = draft
        try:
            draft, name = _add(draft, item, op)
        except NotLowered as reason:
            why = str(reason)
            break
        # A flip behind colours is the engine's all the same.
        is_engines = not draft.stages or draft.steps != before.steps
        (engine if is_engines else batched).append(name)
    lowered = Lowered(
        Geometry(draft.steps, draft.size, draft.filter),
        draft.first or draft.finish,
        (*draft.stages, draft.finish) if draft.stages else (),
        tuple(pipeline[len(engine) + len(batched) :]),
        tuple(engine),
        tuple(batched),
        why,
        draft.notes,
        Followers.together(_followers(transform)),
    )
    _check(lowered)
    return lowered


def _add(draft: Draft, transform: object, op: int) -> tuple[Draft, str]:
    rule = rule_for(transform)
    if rule is None:
        raise NotLowered(_UNKNOWN)
    try:
        draft, name = rule(draft, transform, op)
    except AttributeError as error:  # another version of torchvision
        raise NotLowered(f"{_UNKNOWN} in this version: {error}") from None
    if draft.finish.image and qualified_name(transform).startswith(_V1):
        draft = replace(draft, finish=replace(draft.finish, image=False))
    return draft, name


def _check(lowered: Lowered) -> None:
    """Raises `UsageError` where samples that run one by one would not be what batches are."""
    names = [_name(transform) for transform in lowered.rest]
    mixing = next((name for name in names if name in ("Mixup", "CutMix")), None)
    if mixing is not None:
        raise UsageError(
            f"{mixing} needs whole batches, and from {names[0]} on samples run one by one:"
            f" {names[0]} {lowered.why}."
        )
    if lowered.mixes and names:
        raise UsageError(
            f"{names[0]} runs on one sample at a time ({lowered.why}) and cannot come behind a"
            " mixture of samples. Put it before Mixup and CutMix."
        )
    if not lowered.followers:
        return
    follows = lowered.followers.describe()
    if names:
        raise UsageError(
            f"{follows}, and not through {names[0]}, which runs as given ({lowered.why})."
        )
    if lowered.mixes or any(isinstance(stage, AutoAugment) for stage in lowered.stages):
        raise UsageError(
            f"{follows} through crops, resizes and flips. RandAugment, TrivialAugmentWide, Mixup"
            " and CutMix move pixels as well: leave them out."
        )


def _flatten(transform: Any) -> Iterator[Callable[..., Any]]:
    for part in _parts(transform):
        if is_compose(part):
            yield from _flatten(list(part.transforms))
        elif isinstance(part, type):
            name = part.__name__
            raise UsageError(f"transform holds the class {name}, expected an object: {name}(…).")
        elif callable(part):
            yield part
        else:
            raise UsageError(
                f"transform holds {part!r}, expected transforms: things that can be called."
            )


def _followers(transform: Any) -> Iterator[Followers]:
    for part in _parts(transform):
        if is_compose(part):
            yield from _followers(list(part.transforms))
            if hasattr(part, "followers"):
                yield part.followers


def _parts(transform: Any) -> list[Any]:
    if transform is None:
        return []
    return list(transform) if isinstance(transform, (list, tuple)) else [transform]


def _name(transform: object) -> str:
    return getattr(transform, "__name__", None) or type(transform).__name__
