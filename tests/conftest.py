"""Fixtures that several tests use."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source
from tests.pictures import write_mixed

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def nothing_stays_in_place() -> Iterator[None]:
    """Neither fixes of `slipstream.speed_up` nor anything else that is patched: they would last for
    all tests behind one.
    """
    yield
    if module := sys.modules.get("slipstream.run.speed_up"):
        assert not module.in_place
    if module := sys.modules.get("slipstream.patches"):
        left = {name for _, name in module._layers}
        module._layers.clear()
        assert not left


@pytest.fixture
def run_cli() -> Run:
    """Run `slipstream ARGS` in a process of its own."""

    def run(*args: object, **options: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "slipstream.cli.main", *map(str, args)]
        environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
        given = {
            "capture_output": True,
            "text": True,
            "timeout": 100,
            "env": environment,
            **options,
        }
        return subprocess.run(command, check=False, **given)  # type: ignore[call-overload]

    return run


@pytest.fixture(scope="session")
def mixed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders with a picture of every flavour."""
    return write_mixed(tmp_path_factory.mktemp("mixed") / "pictures")


@pytest.fixture(scope="session")
def mixed_dataset(tmp_path_factory: pytest.TempPathFactory, mixed_folder: Path) -> Path:
    """`mixed_folder`, packed into several shards. Not to be changed."""
    path = tmp_path_factory.mktemp("packed") / "mixed.slip"
    pack_source(open_source(mixed_folder), path, shard_bytes=12_000)
    return path


@pytest.fixture
def fingerprint() -> Callable[[Path], dict[str, str]]:
    """Hash of every file below a folder, by name."""

    def hash_all(folder: Path) -> dict[str, str]:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        }

    return hash_all


class EveryKind:
    """A map-style dataset whose samples hold every kind that code can give."""

    length = 5

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, object]:
        random = np.random.default_rng(index)
        return {
            "fixed": random.normal(size=(3, 2)).astype(np.float32),
            "ragged": random.integers(0, 9, (index, 2)).astype(np.int16),
            "raw": bytes(range(index)),
            "text": "größer " * index,
            "tree": {"a": [1, 2.5, None, "x"], "b": {"index": index}},
            "whole": index - 2,
            "real": index / 3,
        }

    KINDS = {  # noqa: RUF012  never changed
        "fixed": "auto",
        "ragged": "ragged",
        "raw": "auto",
        "text": "auto",
        "tree": "auto",
        "whole": "auto",
        "real": "auto",
    }


@pytest.fixture
def every_kind() -> EveryKind:
    return EveryKind()
