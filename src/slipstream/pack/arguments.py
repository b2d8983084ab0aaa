"""Checks of what a caller asks a pack to do."""

from pathlib import Path

from slipstream.errors import UsageError
from slipstream.store.manifest import MANIFEST_NAME

_LEAST_SHARD_BYTES = 4096


def check_options(shard_bytes: int, workers: int | None, on_error: str) -> None:
    """Refuse options that no pack can work with. Raises `UsageError`."""
    if on_error not in ("raise", "skip"):
        raise UsageError(f'on_error is {on_error!r}, expected "raise" or "skip".')
    if shard_bytes < _LEAST_SHARD_BYTES:
        raise UsageError(f"Shards of {shard_bytes} bytes: expected at least {_LEAST_SHARD_BYTES}.")
    if workers is not None and workers < 1:
        raise UsageError(f"{workers} workers: expected at least 1.")


def check_arguments(dataset: object, dst: Path, shard_bytes: object, workers: object) -> None:
    """Refuse what only Python can give, in Python's terms."""
    if isinstance(dataset, str | Path):
        raise UsageError(
            f"pack_dataset packs Dataset objects, got the path {str(dataset)!r}."
            f" Pack files with the command `slipstream pack {dataset} {dst}`."
        )
    if isinstance(shard_bytes, bool) or not isinstance(shard_bytes, int):
        raise UsageError(
            f"shard_bytes is {shard_bytes!r}, expected an integer: bytes, such as 64_000_000."
        )
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise UsageError(f"workers is {workers!r}, expected 0 (no processes) or more.")
    if (dst / MANIFEST_NAME).is_file():
        raise UsageError(f"{dst} is a packed dataset already. Choose another destination.")
