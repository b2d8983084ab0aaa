"""What processes that read leave out while the ladder is climbed: said by one shared byte."""

import mmap
import os
from pathlib import Path
from typing import Any

AS_IT_IS, COLLATE_ONLY, SAME_SAMPLES, COLD_FILES = range(4)
_FILE = "rung"


class Rungs:
    """The byte, for the recorder, which sets it, and for the processes that read."""

    def __init__(self, folder: Path, *, make: bool = False) -> None:
        path = folder / _FILE
        if make:
            path.write_bytes(b"\0")
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 1)

    @property
    def now(self) -> int:
        """What is to be left out."""
        return self._map[0]

    @now.setter
    def now(self, rung: int) -> None:
        self._map[0] = rung


def obey(fetcher: Any, rungs: Rungs, kept: dict[str, Any]) -> Any:
    """torch's fetcher, which gives batches of samples that it had before when it is told so.
    Fetchers of one loader may share what is `kept`.
    """
    fetch, collate = fetcher.fetch, fetcher.collate_fn

    def keep(samples: Any) -> Any:
        _keep(kept, "samples", samples)
        return collate(samples)

    def fetch_some(index: Any) -> Any:
        rung = rungs.now
        if rung == COLLATE_ONLY and "samples" in kept:
            return collate(kept["samples"])
        if rung == SAME_SAMPLES and kept.get("index") is not None:
            return fetch(kept["index"])
        _keep(kept, "index", index)
        return fetch(index)

    fetcher.fetch, fetcher.collate_fn = fetch_some, keep
    return fetcher


def _keep(kept: dict[str, Any], name: str, given: Any) -> None:
    """Unless it is less than there was: the last batch of an epoch may be."""
    before = kept.get(name)
    if not isinstance(before, list) or not isinstance(given, list) or len(given) >= len(before):
        kept[name] = given


def evict(path: str) -> None:
    """Let the system forget what it has kept of a file; nothing happens where it cannot."""
    if not hasattr(os, "posix_fadvise"):
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        pass
    finally:
        os.close(descriptor)
