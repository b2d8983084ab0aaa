"""`manifest.json`: what a dataset holds. Parsing and writing, nothing else."""

import json
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from slipstream import _native
from slipstream.errors import CorruptDataset, UsageError
from slipstream.store.schema import Field, parse_count, parse_fields

MANIFEST_NAME = "manifest.json"
MANIFEST_LIMIT = 64 << 20
SHARD_LIMIT = 500_000
FORMAT_NAME = "slipstream"
FORMAT_VERSION = 1
SHARD_SAMPLE_LIMIT = (1 << 32) - 1
_NAME_LIMIT = 255


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A shard as the manifest lists it. `crc32c` is that of its footer."""

    file: str
    samples: int
    bytes: int
    crc32c: int

    def to_json(self) -> dict[str, Any]:
        """The entry as it stands in the manifest."""
        return {
            "file": self.file,
            "samples": self.samples,
            "bytes": self.bytes,
            "crc32c": self.crc32c,
        }


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a dataset holds. `crc32c` is filled in by parsing and by `serialize_manifest`."""

    fields: tuple[Field, ...]
    shards: tuple[ShardEntry, ...]
    classes: tuple[str, ...] | None = None
    made_by: dict[str, Any] = field(default_factory=dict)
    crc32c: int = 0

    @property
    def samples(self) -> int:
        """Samples in the whole dataset."""
        return sum(shard.samples for shard in self.shards)


def serialize_manifest(manifest: Manifest) -> bytes:
    """The manifest's file. The same manifest always gives the same bytes."""
    body: dict[str, Any] = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "fields": [entry.to_json() for entry in manifest.fields],
        "samples": manifest.samples,
        "shards": [entry.to_json() for entry in manifest.shards],
        "made_by": manifest.made_by,
    }
    if manifest.classes is not None:
        body["classes"] = list(manifest.classes)
    body["crc32c"] = _native.crc32c(_canonical(body))
    return _canonical(body) + b"\n"


def check_limits(manifest: Manifest) -> None:
    """Raise `UsageError` when readers would refuse this manifest, and say what limit it breaks."""
    try:
        parse_manifest(serialize_manifest(manifest), where="the dataset")
    except CorruptDataset as error:
        raise UsageError(
            f"Readers could not open such a dataset: {error}."
            " Pack fewer or shorter fields, class names or shards."
        ) from None


def is_canonical(data: bytes) -> bool:
    """Whether `data` is byte for byte what a writer makes of this manifest."""
    try:
        return _canonical(json.loads(data)) + b"\n" == data
    except (ValueError, RecursionError):
        return False


def parse_manifest(data: bytes, where: str = MANIFEST_NAME) -> Manifest:
    """Check and read a manifest's bytes. Raises `CorruptDataset`."""
    if len(data) > MANIFEST_LIMIT:
        expected = f"at most {MANIFEST_LIMIT} bytes"
        raise CorruptDataset("too large", where=where, got=f"{len(data)} bytes", expected=expected)
    body = _parse_object(data, where)
    _check_version(body, where)
    crc = _check_crc(body, where)
    fields = parse_fields(body.get("fields"), where)
    shards = _parse_shards(body.get("shards"), where)
    manifest = Manifest(
        fields=fields,
        shards=shards,
        classes=_parse_classes(body.get("classes"), where),
        made_by=_parse_made_by(body.get("made_by"), where),
        crc32c=crc,
    )
    samples = parse_count(body.get("samples"), (1 << 63) - 1, f"{where}: samples")
    if manifest.samples != samples:
        raise CorruptDataset(
            "shards do not add up", where=where, got=manifest.samples, expected=f"{samples} samples"
        )
    return manifest


def _canonical(body: object) -> bytes:
    return json.dumps(
        body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode("ascii")


def _parse_object(data: bytes, where: str) -> dict[str, Any]:
    try:
        body = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise CorruptDataset(f"not JSON: {str(error)[:200]}", where=where) from None
    if not isinstance(body, dict):
        raise CorruptDataset("not an object", where=where, got=type(body).__name__)
    return body


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return result


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _check_version(body: dict[str, Any], where: str) -> None:
    if body.get("format") != FORMAT_NAME:
        got = ascii(body.get("format"))[:80]
        raise CorruptDataset(
            "not a Slipstream manifest", where=where, got=got, expected=FORMAT_NAME
        )
    version = body.get("version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise CorruptDataset(
            "unknown format version",
            where=where,
            got=ascii(version)[:80],
            expected=FORMAT_VERSION,
            do="A newer Slipstream may have written it: upgrade.",
        )


def _check_crc(body: dict[str, Any], where: str) -> int:
    expected = parse_count(body.pop("crc32c", None), 0xFFFFFFFF, f"{where}: crc32c")
    try:
        got = _native.crc32c(_canonical(body))
    except (ValueError, RecursionError) as error:
        raise CorruptDataset(f"not JSON: {str(error)[:200]}", where=where) from None
    if got != expected:
        raise CorruptDataset(
            "checksum does not match", where=where, got=f"{got:#010x}", expected=f"{expected:#010x}"
        )
    return expected


def _parse_shards(value: object, where: str) -> tuple[ShardEntry, ...]:
    if not isinstance(value, list) or len(value) > SHARD_LIMIT:
        got = len(value) if isinstance(value, list) else type(value).__name__
        raise CorruptDataset("bad list of shards", where=where, got=got, expected="a list")
    shards = tuple(_parse_shard(entry, f"{where}: shard {i}") for i, entry in enumerate(value))
    if len({shard.file for shard in shards}) != len(shards):
        raise CorruptDataset("shard files repeat", where=where, expected="unique names")
    return shards


def _parse_shard(entry: object, where: str) -> ShardEntry:
    if not isinstance(entry, dict):
        raise CorruptDataset("bad shard", where=where, got=type(entry).__name__, expected="object")
    name = entry.get("file")
    if not _is_file_name(name):
        got = ascii(name)[:80]
        raise CorruptDataset("bad file name", where=where, got=got, expected="no folder part")
    return ShardEntry(
        file=name,
        samples=parse_count(entry.get("samples"), SHARD_SAMPLE_LIMIT, f"{where}: samples"),
        bytes=parse_count(entry.get("bytes"), (1 << 63) - 1, f"{where}: bytes"),
        crc32c=parse_count(entry.get("crc32c"), 0xFFFFFFFF, f"{where}: crc32c"),
    )


def _is_file_name(name: object) -> TypeGuard[str]:
    return (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and len(name) <= _NAME_LIMIT
        and name.isprintable()
        and not set(name) & set("/\\")
    )


def _parse_classes(value: object, where: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise CorruptDataset("bad classes", where=where, expected="a list of strings")
    return tuple(value)


def _parse_made_by(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        got = type(value).__name__
        raise CorruptDataset("bad made_by", where=where, got=got, expected="an object")
    return value
