"""Any torch Dataset as a source. Datasets of picture files are packed from their files, without
loss.
"""

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Generic

import numpy as np
import torch
import torch.utils.data
from PIL import Image

from slipstream.errors import UsageError
from slipstream.pack.fields import Payload, encode_value, infer_field
from slipstream.pack.sources.folder import PICTURE_SUFFIXES, PictureFiles, entry_for
from slipstream.pack.sources.source import Item, Source, hash_lines
from slipstream.store.schema import KINDS, PICTURES, Field, is_field_name

Declared = Sequence[str] | Mapping[str, str]
_BATCH_ITEMS = 16
_FIRST_TRIES = 100
_HASHED_SAMPLES = 5
_FOLDER_CLASSES = frozenset({"DatasetFolder", "ImageFolder"})
# What PNG stores without loss; TIFF takes the rest.
_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})


def open_torch(dataset: Any, *, fields: Declared | None, workers: int) -> Source:
    """`dataset` as a source; looks at its first sample to find the fields. Raises `UsageError`."""
    kinds = _declared_kinds(fields)
    files = _as_picture_files(dataset)
    if files is not None and _is_picture_and_label(kinds):
        return _renamed(files, kinds)
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return _open_iterable(dataset, kinds)
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise UsageError(
            f"{type(dataset).__name__} is no dataset: expected __getitem__ and __len__,"
            " or an IterableDataset."
        )
    if len(dataset) == 0:
        raise UsageError(f"{type(dataset).__name__} is empty: nothing to pack.")
    layout = _find_layout(dataset, kinds)
    digest = _hash_map(dataset, layout)
    classes = _class_names(dataset, layout)
    remarks = list(layout.remarks)
    return MapSource(
        dataset, layout, len(dataset), workers, digest, "torch dataset", classes, remarks=remarks
    )


@dataclass(frozen=True)
class Layout:
    """How a sample is taken apart: `names` of its fields; `by_key` for dicts, `single` for bare
    values. `remarks` say what could be stored better.
    """

    fields: tuple[Field, ...]
    by_key: bool
    single: bool
    remarks: tuple[str, ...] = ()

    def item(self, key: str, sample: Any) -> Item:
        """The sample as an item. Raises `ValueError` when it differs from the first one."""
        if self.single:
            values: Sequence[Any] = (sample,)
        elif self.by_key:
            missing = [f.name for f in self.fields if f.name not in sample]
            if missing:
                raise ValueError(f"has no {', '.join(missing)}, the first sample does")
            values = [sample[f.name] for f in self.fields]
        else:
            values = tuple(sample)
            if len(values) != len(self.fields):
                raise ValueError(f"has {len(values)} parts, the first sample {len(self.fields)}")
        plain = (_to_plain(f, value) for f, value in zip(self.fields, values, strict=True))
        return Item(key, tuple(plain))


@dataclass(frozen=True)
class MapSource:
    """A map-style dataset; see `slipstream.pack.sources.source`. Samples are made by `workers`
    processes.
    """

    dataset: Any
    layout: Layout
    length: int
    workers: int
    digest: str
    kind: str = "torch dataset"
    classes: tuple[str, ...] | None = None
    total_bytes: int | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def fields(self) -> tuple[Field, ...]:
        """As found in the first sample."""
        return self.layout.fields

    @property
    def stamp(self) -> str:
        """The same as `digest`."""
        return self.digest

    def items(self, start: int) -> Iterator[Item]:
        """Items from `start` on, in order."""
        loader: Any = torch.utils.data.DataLoader(
            _Guarded(self.dataset, self.layout),
            batch_size=_BATCH_ITEMS,
            sampler=range(start, self.length),
            num_workers=self.workers,
            collate_fn=list,
            # Its own generator: packing leaves the caller's random numbers alone.
            generator=torch.Generator(),
        )
        for batch in loader:
            yield from batch


@dataclass(frozen=True)
class IterableSource:
    """An iterable dataset, read once from its start by one process; `samples` are all of it."""

    samples: Iterator[Any]
    layout: Layout
    digest: str
    kind: str = "torch iterable"
    classes: tuple[str, ...] | None = None
    length: int | None = None
    total_bytes: int | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def fields(self) -> tuple[Field, ...]:
        """As found in the first sample."""
        return self.layout.fields

    @property
    def stamp(self) -> str:
        """The same as `digest`."""
        return self.digest

    def items(self, start: int) -> Iterator[Item]:
        """All items, once; `start` must be 0."""
        assert start == 0
        for index, sample in enumerate(self.samples):
            try:
                yield self.layout.item(str(index), sample)
            except (ValueError, TypeError) as error:
                yield Item(str(index), error=str(error))


class _Guarded(torch.utils.data.Dataset[Item]):
    """Runs in worker processes: a sample that fails becomes an item that says so."""

    def __init__(self, dataset: Any, layout: Layout) -> None:
        self.dataset = dataset
        self.layout = layout

    def __getitem__(self, index: int) -> Item:
        try:
            return self.layout.item(str(index), self.dataset[index])
        except Exception as error:  # the dataset's own code: anything may come
            return Item(str(index), error=f"{type(error).__name__}: {error}")

    def __len__(self) -> int:
        return len(self.dataset)


def _as_picture_files(dataset: Any) -> PictureFiles | None:
    """`ImageFolder` and its like, by their attributes; also a `Subset` of one."""
    if isinstance(dataset, torch.utils.data.Subset):
        whole = _as_picture_files(dataset.dataset)
        if whole is None:
            return None
        chosen = [whole.entries[int(index)] for index in dataset.indices]
        return PictureFiles(whole.kind, chosen, whole.extra_fields, whole.classes)
    samples = getattr(dataset, "samples", None) or getattr(dataset, "imgs", None)
    if not _gives_its_files(dataset):
        return None
    if not isinstance(samples, list) or not callable(getattr(dataset, "loader", None)):
        return None
    for entry in samples:
        is_pair = isinstance(entry, tuple) and len(entry) == 2
        if not is_pair or not isinstance(entry[0], str | Path) or not isinstance(entry[1], int):
            return None
        if Path(entry[0]).suffix.lower() not in PICTURE_SUFFIXES:
            return None
    root = Path(getattr(dataset, "root", ""))
    entries = [entry_for(Path(path), _key(Path(path), root), (label,)) for path, label in samples]
    label = Field("label", "int")
    return PictureFiles("picture dataset", entries, (label,), _strings(dataset))


def _gives_its_files(dataset: Any) -> bool:
    """Whether items are what `samples` lists: a subclass may have made something else of them."""
    givers = [kind for kind in type(dataset).__mro__ if "__getitem__" in vars(kind)]
    if not givers:
        return False
    folders = [kind for kind in givers if kind.__name__ in _FOLDER_CLASSES]
    bases = set(givers[0].__mro__) - {givers[0], object, torch.utils.data.Dataset, Generic}
    return folders == givers[:1] or not bases


def _is_picture_and_label(kinds: dict[str, str] | None) -> bool:
    """Whether the declared fields are a picture file and its label, or nothing is declared."""
    if kinds is None:
        return True
    given = list(kinds.values())
    is_pair = len(given) == 2 and given[0] in ("auto", "jpeg", "image") and "key" not in kinds
    return is_pair and given[1] in ("auto", "int")


def _renamed(files: PictureFiles, kinds: dict[str, str] | None) -> PictureFiles:
    if kinds is None:
        return files
    picture, label = kinds
    classes = files.classes if label == "label" else None
    extra = (Field(label, "int"),)
    return PictureFiles(files.kind, files.entries, extra, classes, picture_name=picture)


def _class_names(dataset: Any, layout: "Layout") -> tuple[str, ...] | None:
    """Class names that the dataset offers, where it has a field `label` for them to number."""
    has_label = any(f.name == "label" and f.kind == "int" for f in layout.fields)
    return _strings(dataset) if has_label else None


def _strings(dataset: Any) -> tuple[str, ...] | None:
    names = getattr(dataset, "classes", None)
    is_named = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_named and names else None


def _key(path: Path, root: Path) -> str:
    try:
        return path.relative_to(root).as_posix()
    except ValueError:
        return path.name


def _declared_kinds(fields: Declared | None) -> dict[str, str] | None:
    if fields is None:
        return None
    if isinstance(fields, str):
        raise UsageError(f"fields is the text {fields!r}. Give a list: fields=[{fields!r}].")
    kinds = dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields, "auto")
    known = (*(kind for kind in KINDS if kind != "tokens"), "ragged", "auto")
    for name, kind in kinds.items():
        if kind not in known:
            raise UsageError(f'Field "{name}": unknown kind {kind!r}. Kinds: {", ".join(known)}.')
        if not is_field_name(name):
            raise UsageError(f"{name!r} cannot name a field. Use letters, digits and _ . -")
    return kinds


def _open_iterable(dataset: Any, kinds: dict[str, str] | None) -> IterableSource:
    samples = iter(dataset)
    for first in samples:
        layout = _layout(first, kinds)
        digest = hash_lines([type(dataset).__qualname__, _hash_sample([first], 0, layout)])
        # The same iterator goes on: a stream may not start anew.
        remarks = list(layout.remarks)
        return IterableSource(chain([first], samples), layout, digest, remarks=remarks)
    raise UsageError(f"{type(dataset).__name__} is empty: nothing to pack.")


def _hash_map(dataset: Any, layout: Layout) -> str:
    """Hash of class, length and a few samples, so that a pack does not go on with another dataset.

    Samples that are random do not take part: they are never the same again.
    """
    length = len(dataset)
    indices = sorted({k * (length - 1) // (_HASHED_SAMPLES - 1) for k in range(_HASHED_SAMPLES)})
    once, again = ([_hash_sample(dataset, index, layout) for index in indices] for _ in range(2))
    return hash_lines(
        [type(dataset).__qualname__, str(length), *(once if once == again else ("random",))]
    )


def _hash_sample(dataset: Any, index: int, layout: Layout) -> str:
    try:
        values = layout.item("", dataset[index]).values
        encoded = [
            value if spec.kind in PICTURES else encode_value(spec, value)
            for spec, value in zip(layout.fields, values, strict=True)
        ]
    except Exception as error:  # the dataset's own code: anything may come
        return type(error).__name__
    total = hashlib.sha256()
    for value in encoded:
        data = value.data if isinstance(value, Payload) else value
        data = data if isinstance(data, bytes | memoryview) else repr(data).encode()
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()


def _find_layout(dataset: Any, kinds: dict[str, str] | None) -> Layout:
    """From the first sample that can be had."""
    reason: Exception | None = None
    for index in range(min(len(dataset), _FIRST_TRIES)):
        try:
            sample = dataset[index]
        except Exception as error:  # the dataset's own code: anything may come
            reason = reason or error
            continue
        return _layout(sample, kinds)
    raise UsageError(
        f"{type(dataset).__name__} gives no sample to learn its fields from:"
        f" {type(reason).__name__}: {reason}."
    )


def _layout(sample: Any, kinds: dict[str, str] | None) -> Layout:
    by_key = isinstance(sample, Mapping)
    single = not by_key and not isinstance(sample, tuple | list)
    if by_key:
        names = [str(name) for name in sample] if kinds is None else list(kinds)
        missing = [name for name in names if name not in sample]
        if missing:
            raise UsageError(f"Samples have no {', '.join(missing)}. They have: {list(sample)}.")
        values = [sample[name] for name in names]
    else:
        values = [sample] if single else list(sample)
        names = list(kinds) if kinds is not None else _default_names(sample, values)
    if len(names) != len(values):
        raise UsageError(f"{len(names)} fields named, but a sample has {len(values)} parts.")
    for name in names:
        if not is_field_name(name):
            raise UsageError(f"{name!r} cannot name a field. Name the fields with fields=[…].")
    fields = [
        _infer(name, value, (kinds or {}).get(name, "auto"))
        for name, value in zip(names, values, strict=True)
    ]
    jpegs = [n for n, value in zip(names, values, strict=True) if _is_open_jpeg(value)]
    return Layout(tuple(fields), by_key, single, tuple(map(_remark_on_pixels, jpegs)))


def _is_open_jpeg(value: Any) -> bool:
    """Whether Pillow has opened this from a JPEG, and nothing was made of it since."""
    return isinstance(value, Image.Image) and value.format in ("JPEG", "MPO")


def _remark_on_pixels(name: str) -> str:
    return (
        f'field "{name}" holds JPEGs that Pillow has opened: their pixels are stored, which takes'
        " more space and has no tiles to decode alone. Let the dataset return the bytes of the file"
        f' and pass fields={{"{name}": "jpeg", …}}'
    )


def _default_names(sample: Any, values: list[Any]) -> list[str]:
    if hasattr(sample, "_fields"):
        return list(sample._fields)
    if isinstance(values[0], Image.Image):
        names = ["image", "label"] if len(values) == 2 and _is_integer(values[1]) else ["image"]
        return names + [f"x{k}" for k in range(len(names), len(values))]
    return ["x"] if len(values) == 1 else [f"x{k}" for k in range(len(values))]


def _is_integer(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.ndim == 0 and not value.is_floating_point()
    return isinstance(value, int | np.integer)


def _infer(name: str, value: Any, kind: str) -> Field:
    if isinstance(value, Image.Image):
        if kind not in ("auto", "image"):
            raise UsageError(
                f'Field "{name}": a decoded picture can only be stored as "image".'
                ' For "jpeg" let the dataset return the bytes of the JPEG file.'
            )
        return Field(name, "image")
    return infer_field(name, _to_numpy(name, value), kind=kind)


def _to_plain(spec: Field, value: Any) -> Any:
    """A value as the packer takes it: pictures as file bytes, tensors as NumPy arrays."""
    if isinstance(value, Image.Image):
        if spec.kind != "image":
            raise ValueError(f'field "{spec.name}" holds {spec.kind}, got a picture')
        out = io.BytesIO()
        value.save(out, "PNG" if value.mode in _PNG_MODES else "TIFF")
        return out.getvalue()
    plain = _to_numpy(spec.name, value)
    if spec.kind in ("jpeg", "image") and not isinstance(plain, bytes):
        raise ValueError(f'field "{spec.name}" holds pictures, got {type(value).__name__}')
    return plain


def _to_numpy(name: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    try:
        array = value.detach().cpu().numpy()
    except TypeError:
        raise UsageError(
            f'Field "{name}": NumPy has no {value.dtype}. Convert it, for example with .float().'
        ) from None
    return array[()] if array.ndim == 0 else array
