"""A torchvision pipeline, lowered: the part the native engine does, and the part that stays."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from slipstream.augment.finish import Finish
from slipstream.augment.geometry import Geometry
from slipstream.augment.rules import Draft, NotLowered, is_compose, qualified_name, rule_for
from slipstream.errors import UsageError

_UNKNOWN = "not known to the engine"
_V1 = "torchvision.transforms.transforms."


@dataclass(frozen=True)
class Lowered:
    """A pipeline in two parts: `geometry` and `finish` for the engine, `rest` to run as given.

    `rest` starts at the first transform that cannot be lowered, and `why` says why it cannot (it
    is empty if all of them are lowered). `lowered` names those before it. `notes` says what differs
    from the pipeline as given; it is empty with exact=True.
    """

    geometry: Geometry = field(default_factory=Geometry)
    finish: Finish = field(default_factory=Finish)
    rest: tuple[Callable[..., Any], ...] = ()
    lowered: tuple[str, ...] = ()
    why: str = ""
    notes: tuple[str, ...] = ()

    def complete(self, pixels: npt.NDArray[np.uint8]) -> Any:
        """What the pipeline gives for the engine's uint8[H, W, 3] of one sample: finished, then
        through `rest`. Where `rest` starts before the picture becomes a tensor it gets a Pillow
        picture; where nothing makes a tensor of it and there is no `rest`, the pixels come back.

        >>> lower(None, exact=True).complete(np.zeros((2, 4, 3), np.uint8)).shape
        (2, 4, 3)
        """
        value: Any = self.finish.apply(pixels)
        if not self.rest:
            return value
        value = Image.fromarray(value) if self.finish.kind == "array" else self.finish.wrap(value)
        for transform in self.rest:
            value = transform(value)
        return value

    def describe(self) -> str:
        """What runs where, in a line; a second one for the notes, if there are any.

        >>> lower([abs], exact=True).describe()
        'engine: decode; as given: abs (not known to the engine)'
        """
        text = f"engine: {', '.join(self.lowered) or 'decode'}"
        if self.rest:
            first, *others = (_name(transform) for transform in self.rest)
            text += f"; as given: {', '.join([f'{first} ({self.why})', *others])}"
        return "\n".join([text, *([f"note: {'; '.join(self.notes)}"] if self.notes else [])])


def lower(transform: object, *, exact: bool) -> Lowered:
    """Split a pipeline into what the engine does and what runs as given.

    `transform` is a torchvision Compose (either generation, nested or not), one transform, a list
    or tuple of them, or None. With `exact` the result is bit for bit what the pipeline makes of
    the Pillow picture, given the same random numbers; without it a resize that torchvision would
    run on a tensor is lowered too, with Pillow's pixels, and a note says so. torchvision is not
    imported, and need not be installed.

    >>> lower(None, exact=True)
    Lowered(geometry=Geometry(steps=(), size=None, filter='bilinear'), finish=Finish(kind='array', \
scale='none', normalize=(), planar=False, image=False), rest=(), lowered=(), why='', notes=())
    """
    pipeline = list(_flatten(transform))
    draft, names, why = Draft(exact), [], ""
    for op, item in enumerate(pipeline):
        try:
            draft, name = _add(draft, item, op)
        except NotLowered as reason:
            why = str(reason)
            break
        names.append(name)
    return Lowered(
        Geometry(draft.steps, draft.size, draft.filter),
        draft.finish,
        tuple(pipeline[len(names) :]),
        tuple(names),
        why,
        draft.notes,
    )


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


def _flatten(transform: Any) -> Iterator[Callable[..., Any]]:
    if transform is None:
        return
    parts = transform if isinstance(transform, (list, tuple)) else [transform]
    for part in parts:
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


def _name(transform: object) -> str:
    return getattr(transform, "__name__", None) or type(transform).__name__
