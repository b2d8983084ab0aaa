"""WebDataset tar shards: members that share a name up to the first dot are one sample."""

import io
import os
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.errors import BadSource, UsageError
from slipstream.pack.fields import infer_field
from slipstream.pack.sources.source import Item, hash_lines, read_ahead
from slipstream.store.schema import Field

_CHUNK_BYTES = 1 << 20
_KINDS = {
    **dict.fromkeys(("jpg", "jpeg"), "jpeg"),
    **dict.fromkeys(("png", "webp", "bmp", "gif", "tif", "tiff"), "image"),
    "cls": "int",
    "txt": "text",
    "json": "json",
    "npy": "array",
}


@dataclass(frozen=True, slots=True)
class Group:
    """A sample: its tar, its key, and where each part of it lies: ending → (offset, size).

    `errors` are reasons why it cannot be packed.
    """

    tar: str
    key: str
    parts: dict[str, tuple[int, int]]
    errors: list[str]


@dataclass(frozen=True)
class TarSource:
    """Samples of some tar files; see `slipstream.pack.sources.source`."""

    groups: Sequence[Group]
    endings: tuple[str, ...]
    fields: tuple[Field, ...]
    total_bytes: int
    stamp: str
    remarks: list[str]
    kind: str = "tar shards"
    classes: tuple[str, ...] | None = None

    @property
    def length(self) -> int:
        """Number of samples."""
        return len(self.groups)

    @property
    def digest(self) -> str:
        """Hash of names and sizes."""
        return hash_lines(
            f"{g.key}|{sorted((ending, size) for ending, (_, size) in g.parts.items())}"
            for g in self.groups
        )

    def items(self, start: int) -> Iterator[Item]:
        """Items from `start` on; bytes are read by position, what lies before is not touched."""
        return read_ahead(self.groups, start, self._read, _group_bytes)

    def _read(self, group: Group) -> Item:
        if group.errors:
            return Item(group.key, error="; ".join(group.errors))
        if group.key.startswith("/") or ".." in group.key.split("/"):
            return Item(group.key, error="the name leads out of the folder; pack it by another")
        try:
            values = [
                self._part(group, *pair) for pair in zip(self.endings, self.fields, strict=False)
            ]
        except KeyError as error:
            return Item(group.key, error=f"has no .{error.args[0]}, the first sample does")
        except (OSError, ValueError) as error:
            return Item(group.key, error=str(error))
        return Item(group.key, (*values, group.key))

    def _part(self, group: Group, ending: str, field: Field) -> Any:
        data = _read_at(group.tar, *group.parts[ending])
        return _parse(ending, field.kind, data)


def open_tars(paths: Sequence[Path]) -> TarSource:
    """Index the tar files by their headers; the first sample fixes the fields.

    Raises `UsageError` for what is no tar file, `BadSource` for one that is cut or damaged.

    `jpg` and other picture endings become the field `image`, `cls` becomes `label`, others keep
    their name.
    """
    remarks: list[str] = []
    groups = [group for path in paths for group in _index(path, remarks)]
    if not groups:
        raise UsageError(f"{paths[0].parent if len(paths) > 1 else paths[0]} holds no samples.")
    first = next((group for group in groups if not group.errors), None)
    if first is None:
        bad = groups[0]
        raise BadSource(f"No sample of {bad.tar} can be packed: {bad.key}: {bad.errors[0]}.")
    endings = tuple(first.parts)
    fields = _infer_fields(first, endings)
    extra = Counter(ending for group in groups for ending in group.parts if ending not in endings)
    remarks += [
        f"members .{ending} were left aside, as the first sample has none: {count}"
        for ending, count in extra.most_common()
    ]
    states = [path.stat() for path in paths]
    stamp = hash_lines(
        f"{path.name}|{state.st_size}|{state.st_mtime_ns}"
        for path, state in zip(paths, states, strict=True)
    )
    total_bytes = sum(state.st_size for state in states)
    return TarSource(groups, endings, fields, total_bytes, stamp, remarks)


def _index(path: Path, remarks: list[str]) -> Iterator[Group]:
    current: Group | None = None
    offset = 0
    try:
        with tarfile.open(path, "r:") as tar:
            while (member := tar.next()) is not None:
                # Keeps tarfile from holding every header of a large archive.
                tar.members = []  # type: ignore[attr-defined]
                offset = tar.offset
                key, ending = _split(member.name)
                if not member.isreg() or not ending:
                    continue
                if current is None or current.key != key:
                    if current is not None:
                        yield current
                    current = Group(str(path), key, {}, [])
                _add_member(current, ending, member)
            offset = tar.offset
    except tarfile.TarError as error:
        if offset:
            raise BadSource(
                f"{path} is cut or damaged near byte {offset}: {error}. Copy it again."
            ) from None
        raise UsageError(
            f"{path} is not a plain tar file: {error}. Unpack compressed archives first."
        ) from None
    _check_end(path, offset, remarks)
    if current is not None:
        yield current


def _add_member(group: Group, ending: str, member: tarfile.TarInfo) -> None:
    if member.issparse():
        group.errors.append(f".{ending} is a sparse member; make the tar without --sparse")
    if ending in group.parts:
        group.errors.append(f".{ending} is there twice")
    group.parts[ending] = (member.offset_data, member.size)


def _check_end(path: Path, offset: int, remarks: list[str]) -> None:
    """What stands where the headers end is the mark of the end, else members may be lost.

    `tarfile` takes a damaged header for the end.
    """
    with path.open("rb") as file:
        file.seek(offset)
        mark = file.read(tarfile.BLOCKSIZE)
        if not mark:
            remarks.append(f"{path.name} has no end mark: if it was cut, samples are missing")
        elif mark != bytes(tarfile.BLOCKSIZE):
            raise BadSource(
                f"{path} is cut or damaged: at byte {offset} there is neither a header"
                " nor the end mark. Copy it again."
            )
        while rest := file.read(_CHUNK_BYTES):
            if rest.strip(b"\0"):
                remarks.append(f"{path.name} goes on behind its end mark: that was left aside")
                return


def _split(name: str) -> tuple[str, str]:
    folder, _, base = name.removeprefix("./").rpartition("/")
    stem, _, ending = base.partition(".")
    if base.startswith("."):
        return name, ""
    return (f"{folder}/{stem}" if folder else stem), ending.lower()


def _infer_fields(group: Group, endings: Sequence[str]) -> tuple[Field, ...]:
    kinds = {ending: _KINDS.get(ending.rpartition(".")[2], "bytes") for ending in endings}
    pictures = [ending for ending, kind in kinds.items() if kind in ("jpeg", "image")]
    fields: list[Field] = []
    for ending, kind in kinds.items():
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", ending)[:60]
        if pictures == [ending]:
            name = "image"
        elif ending == "cls":
            name = "label"
        name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
        while name == "key" or name in [field.name for field in fields]:
            name += "_"
        if kind == "array":
            array = _parse(ending, kind, _read_at(group.tar, *group.parts[ending]))
            fields.append(infer_field(name, array, kind="ragged"))
        else:
            fields.append(Field(name, kind))
    return (*fields, Field("key", "text"))


def _parse(ending: str, kind: str, data: bytes) -> Any:
    try:
        if kind == "int":
            return int(data)
        if kind == "text":
            return data.decode("utf-8")
        if kind == "array":
            return np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f".{ending}: {error}") from None
    return data


def _group_bytes(group: Group) -> int:
    return sum(size for _, size in group.parts.values())


def _read_at(path: str, offset: int, size: int) -> bytes:
    parts: list[bytes] = []
    end = offset + size
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The system reads no more than 2 GiB at once.
        while offset < end:
            parts.append(os.pread(descriptor, end - offset, offset))
            if not parts[-1]:
                raise ValueError(f"{path} ends too early")
            offset += len(parts[-1])
    finally:
        os.close(descriptor)
    return b"".join(parts)
