"""How fast the storage is that some files lie on: measured on these very files, by reading only.

"Cold" bytes were not in this machine's page cache: it was asked to drop them, and asked whether it
did. A disk, a hypervisor or a file server may still have had them in a cache of its own. "Warm"
bytes had been read just before.
"""

import contextlib
import os
import random
import stat
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.doctor.mount import Mount, mount_of
from slipstream.doctor.pages import drop_pages, resident_share
from slipstream.errors import UsageError

_ROUNDS = 3
_MOST_ROUNDS = 7  # where there is time
_OPEN_FILES = 128  # at a time: a process may often have no more than 1024
_SEQUENTIAL_BYTES = 64 << 20  # of a round
_SEQUENTIAL_READ = 1 << 20
_BLOCK_BYTES = 128 << 10
_WHOLE_BYTES = 2 * _BLOCK_BYTES  # files up to here are read whole
_PREPARE_SHARE = 0.4  # of a round's time goes at most into opening, dropping and asking
_COLD_SHARE = 0.9
_WARM_ENOUGH_S = 0.02
_STUBBORN_SHARE = 0.01  # of the pages may have stayed

Read = tuple[int, int, int]  # open file, offset, length


@dataclass(frozen=True)
class Rates:
    """Medians over the rounds, of files that are open already. None: not measured."""

    sequential_bytes_per_s: float | None = None
    random_bytes_per_s: float | None = None
    random_deep_bytes_per_s: float | None = None  # with `depth` reads at a time


@dataclass(frozen=True)
class StorageProbe:
    """What was found out. Goes into JSON with `dataclasses.asdict`."""

    mount: Mount | None  # of the first file that could be opened
    cold: Rates
    warm: Rates
    depth: int
    random_read_bytes: int | None = None  # the median one
    reads_whole_files: bool = False  # random reads are whole files, not blocks of large ones
    open_ms: float | None = None  # median
    open_p95_ms: float | None = None
    opened: int = 0
    failed: int = 0  # files that could not be opened or read
    read_bytes: int = 0  # in all
    seconds: float = 0.0


@dataclass
class _Tally:
    rng: random.Random
    first: Path | None = None
    opens_s: list[float] = field(default_factory=list)
    failed: set[Path] = field(default_factory=set)
    read_bytes: int = 0
    random_sizes: list[int] = field(default_factory=list)
    blocks: int = 0


@dataclass(frozen=True)
class _Piece:
    fd: int
    offset: int
    length: int
    is_cold: bool


def probe_storage(files: Sequence[Path], *, seconds: float = 2.0, threads: int = 4) -> StorageProbe:
    """Read a sample of the files for about that long; `threads` is the depth of deep reads.

    Takes the same sample every time. Files that are gone, empty, unreadable or no files are left
    out. A single read of a file server that hangs cannot be cut short.

    >>> probe_storage([Path(__file__)], seconds=0.1).opened > 0
    True
    """
    if seconds <= 0 or threads < 1:
        raise UsageError(f"seconds={seconds}, threads={threads}: expected both above 0.")
    began = time.perf_counter()
    tally = _Tally(random.Random(0))
    kinds = [(True, 1), (False, 1), (False, threads)] if files else []
    colds: list[list[float]] = [[] for _ in kinds]
    warms: list[list[float]] = [[] for _ in kinds]
    for turn in range(_MOST_ROUNDS * len(kinds)):
        left_s = began + seconds - time.perf_counter()
        if left_s <= (0 if turn < _ROUNDS * len(kinds) else seconds / 4):
            break
        kind = turn % len(kinds)
        slot_s = left_s / max(_ROUNDS * len(kinds) - turn, len(kinds))
        cold, warm = _round(files, *kinds[kind], slot_s, tally)
        colds[kind] += cold
        warms[kind] += warm
    return StorageProbe(
        mount=None if tally.first is None else mount_of(tally.first),
        cold=Rates(*map(_median, colds)),
        warm=Rates(*map(_median, warms)),
        depth=threads,
        random_read_bytes=round(statistics.median(tally.random_sizes or [0])) or None,
        reads_whole_files=tally.blocks * 2 < len(tally.random_sizes),
        **_open_times(tally.opens_s),
        opened=len(tally.opens_s),
        failed=len(tally.failed),
        read_bytes=tally.read_bytes,
        seconds=time.perf_counter() - began,
    )


def describe(probe: StorageProbe) -> str:
    """One line for a terminal.

    >>> mount = Mount("ext4", "/", "/dev/nvme0n1p1", "nvme0n1p1", False, False)
    >>> cold, warm = Rates(1.9e9, 42e6, 150e6), Rates(6.2e9, 6e9, 8e9)
    >>> describe(StorageProbe(mount, cold, warm, 4, 110_000, True))
    'ext4 on nvme0n1p1: 1.9 GB/s cold sequential, 42 MB/s cold random 110 kB files, 6.2 GB/s warm'
    """
    parts = []
    if probe.cold.sequential_bytes_per_s is not None:
        parts.append(f"{_size(probe.cold.sequential_bytes_per_s)}/s cold sequential")
    if probe.cold.random_bytes_per_s is not None and probe.random_read_bytes is not None:
        what = "files" if probe.reads_whole_files else "blocks"
        rate, size = _size(probe.cold.random_bytes_per_s), _size(probe.random_read_bytes)
        parts.append(f"{rate}/s cold random {size} {what}")
    warm = probe.warm.sequential_bytes_per_s or probe.warm.random_bytes_per_s
    if warm is not None:
        parts.append(f"{_size(warm)}/s warm")
    return f"{_where(probe.mount)}: {', '.join(parts) or 'nothing could be read'}"


def _where(mount: Mount | None) -> str:
    if mount is None:
        return "unknown filesystem"
    below = f" over {mount.below}" if mount.below else ""
    return f"{mount.kind}{below} on {mount.device or mount.source}"


def _round(
    files: Sequence[Path], sequential: bool, depth: int, slot_s: float, tally: _Tally
) -> tuple[list[float], list[float]]:
    """Measure once: (cold rate, warm rate) in bytes a second, each an empty list if unknown."""
    began = time.perf_counter()
    with contextlib.ExitStack() as open_files:
        until = began + slot_s * _PREPARE_SHARE
        pieces = list(_pieces(files, sequential, until, tally, open_files))
        cold = [piece for piece in pieces if piece.is_cold]
        is_cold = 2 * len(cold) > len(pieces)
        if is_cold:
            pieces = cold
        reads = _reads(pieces)
        done, cold_rate = _read(reads, depth, began + slot_s * _COLD_SHARE, tally)
        if not done:
            return [], []
        # A filesystem with a cache of its own leaves the system's empty: then "cold" says nothing.
        shares = [resident_share(*read) for read in done[:_OPEN_FILES]]
        is_cold = is_cold and statistics.fmean(share or 0.0 for share in shares) > 0.5
        rates: list[float] = []
        warm_until = time.perf_counter() + min(_WARM_ENOUGH_S, slot_s)
        while not rates or time.perf_counter() < warm_until:
            again, rate = _read(done, depth, began + 2 * slot_s, tally)
            rates += [rate] if len(again) == len(done) or not rates else []
        return [cold_rate] if is_cold else [], [statistics.median(rates)]


def _pieces(
    files: Sequence[Path],
    sequential: bool,
    until: float,
    tally: _Tally,
    open_files: contextlib.ExitStack,
) -> Iterator[_Piece]:
    """Parts of files that are open, and out of the page cache where that could be done."""
    opened: dict[int, int | None] = {}
    taken: set[tuple[int, int]] = set()
    left_bytes = _SEQUENTIAL_BYTES
    for number in _order(len(files), sequential, tally.rng):
        if taken and time.perf_counter() > until:
            return
        if number not in opened:
            opened[number] = _open(files[number], tally, open_files)
        fd = opened[number]
        if fd is None:
            continue
        size = os.fstat(fd).st_size
        offset, length = _part(size, sequential, left_bytes, tally.rng)
        if (number, offset) in taken or length <= 0:
            continue
        taken.add((number, offset))
        if not sequential:
            tally.random_sizes.append(length)
            tally.blocks += length < size
        drop_pages(fd, offset, length)
        share = resident_share(fd, offset, length)
        if not sequential and length < size and hasattr(os, "posix_fadvise"):
            # Reading ahead would warm other blocks.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        yield _Piece(fd, offset, length, share is not None and share <= _STUBBORN_SHARE)
        left_bytes -= length
        if sequential and left_bytes <= 0:
            return


def _order(count: int, sequential: bool, rng: random.Random) -> Iterator[int]:
    """Numbers of files: neighbours in the order given, or any; few files come several times."""
    if sequential:
        start = rng.randrange(count)
        yield from ((start + step) % count for step in range(min(count, _OPEN_FILES)))
        return
    numbers = rng.sample(range(count), min(count, _OPEN_FILES))
    for step in range(_OPEN_FILES):
        yield numbers[step % len(numbers)]


def _part(size: int, sequential: bool, left_bytes: int, rng: random.Random) -> tuple[int, int]:
    """Offset and length of what to read of a file; offsets are whole blocks."""
    if sequential:
        blocks = max(size - left_bytes, 0) // _BLOCK_BYTES
        return rng.randint(0, blocks) * _BLOCK_BYTES, min(size, left_bytes)
    if size <= _WHOLE_BYTES:
        return 0, size
    return rng.randrange(size // _BLOCK_BYTES) * _BLOCK_BYTES, _BLOCK_BYTES


def _open(path: Path, tally: _Tally, open_files: contextlib.ExitStack) -> int | None:
    began = time.perf_counter()
    try:
        # Without O_NONBLOCK, opening a named pipe waits for somebody to write into it.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        tally.failed.add(path)
        return None
    passed_s = time.perf_counter() - began
    open_files.callback(os.close, fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return None
    tally.opens_s.append(passed_s)
    tally.first = tally.first or path
    return fd


def _reads(pieces: list[_Piece]) -> list[Read]:
    return [
        (piece.fd, offset, min(_SEQUENTIAL_READ, piece.offset + piece.length - offset))
        for piece in pieces
        for offset in range(piece.offset, piece.offset + piece.length, _SEQUENTIAL_READ)
    ]


def _read(reads: list[Read], depth: int, until: float, tally: _Tally) -> tuple[list[Read], float]:
    """Read until the time is up: (reads that were done, bytes a second)."""
    waiting = deque(reads)
    done: list[tuple[Read, int]] = []

    def work() -> None:
        buffer = memoryview(bytearray(_SEQUENTIAL_READ))
        while waiting and (not done or time.perf_counter() < until):
            # Another thread may have taken the last one; a file may be cut short or go stale.
            with contextlib.suppress(IndexError, OSError):
                read = waiting.popleft()
                done.append((read, _read_into(buffer, *read)))

    began = time.perf_counter()
    threads = [threading.Thread(target=work, daemon=True) for _ in range(depth - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    passed_s = max(time.perf_counter() - began, 1e-9)
    total = sum(count for _, count in done)
    tally.read_bytes += total
    return [read for read, count in done if count], total / passed_s


def _read_into(buffer: memoryview, fd: int, offset: int, length: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(fd, [buffer[:length]], offset)
    return len(os.pread(fd, length, offset))


def _median(rates: list[float]) -> float | None:
    return statistics.median(rates) if rates else None


def _open_times(opens_s: list[float]) -> dict[str, float]:
    if not opens_s:
        return {}
    ordered = sorted(opens_s)
    p95 = ordered[min(len(ordered) * 95 // 100, len(ordered) - 1)]
    return {"open_ms": statistics.median(ordered) * 1e3, "open_p95_ms": p95 * 1e3}


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.2g} {unit}" if count < 9.95 else f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.2g} TB"
