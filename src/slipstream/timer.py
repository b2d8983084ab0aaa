"""`Timer`: a stopwatch that waits for the accelerator, so that what it measured has happened."""

import math
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from slipstream.errors import UsageError

if TYPE_CHECKING:
    import torch

_COLUMNS = ("count", "mean", "median", "min", "max", "std", "p95")
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True)
class Laps:
    """What the laps of one name took, warm-up left out. A number that cannot be known is nan.

    >>> laps = Laps((0.2, 0.1, 0.3))
    >>> laps.count, laps.median_s, laps.max_s
    (3, 0.2, 0.3)
    """

    seconds: tuple[float, ...]

    @property
    def count(self) -> int:
        """Laps that count."""
        return len(self.seconds)

    @property
    def mean_s(self) -> float:
        """Mean of the laps."""
        return statistics.fmean(self.seconds) if self.seconds else math.nan

    @property
    def median_s(self) -> float:
        """Median: what a few slow laps do not move."""
        return statistics.median(self.seconds) if self.seconds else math.nan

    @property
    def min_s(self) -> float:
        """The fastest lap."""
        return min(self.seconds, default=math.nan)

    @property
    def max_s(self) -> float:
        """The slowest lap."""
        return max(self.seconds, default=math.nan)

    @property
    def std_s(self) -> float:
        """Standard deviation of single laps (n - 1); of less than two it is nan."""
        return statistics.stdev(self.seconds) if self.count > 1 else math.nan

    @property
    def p95_s(self) -> float:
        """95 of 100 laps are at most this long; between two laps it is interpolated."""
        if self.count < 2:
            return self.max_s
        return statistics.quantiles(self.seconds, n=20, method="inclusive")[-1]


class Timer:
    """Time a block, or the laps of a loop, with the accelerator's work and nothing else.

    Work on an accelerator is only queued by the line that starts it. The clock is therefore read
    when the device has nothing left to do, at the start and at the end of a block or a lap.

    >>> import slipstream
    >>> timer = slipstream.Timer(warmup=2)
    >>> with timer:
    ...     for _ in range(10):
    ...         with timer.lap("forward"):
    ...             total = sum(range(1000))
    >>> timer.laps["forward"].count
    8
    >>> timer.seconds > timer.laps["forward"].mean_s
    True

    `print(timer)` shows a table. `warmup`: the first laps of each name, which do not count.
    `device`: None waits for the accelerator that torch uses, if it uses one, and never starts
    one; a device waits for that device only; "cpu" waits for nothing.

    Laps of different names nest; the inner ones make the outer one wait, too. A lap that raises
    does not count, and the device is not asked, since it may be what failed. A later block
    replaces `seconds`; laps add up for as long as the timer lives. A timer belongs to the thread
    that uses it first: another one gets a `UsageError`.
    """

    def __init__(self, *, warmup: int = 0, device: "str | torch.device | None" = None) -> None:
        if warmup < 0:
            raise UsageError(f"warmup is {warmup!r}; expected a number of laps, 0 or more.")
        self._warmup = warmup
        self._waits = str(device).split(":", maxsplit=1)[0] != "cpu"
        self._device = _parsed(device) if self._waits else None
        self._thread: int | None = None
        self._running: dict[str | None, int] = {}
        self._ns: int | None = None
        self._laps: dict[str, list[int]] = {}

    @property
    def seconds(self) -> float:
        """What the last `with timer:` block took; inside the block: so far, without waiting."""
        started = self._running.get(None)
        if started is not None:
            return (time.perf_counter_ns() - started) / 1e9
        if self._ns is None:
            raise UsageError(
                "This timer has not measured a block. Use `with timer: …`, or read `timer.laps`."
            )
        return self._ns / 1e9

    @property
    def laps(self) -> dict[str, Laps]:
        """The laps so far, by name."""
        return {
            name: Laps(tuple(ns / 1e9 for ns in laps[self._warmup :]))
            for name, laps in self._laps.items()
        }

    @contextmanager
    def lap(self, name: str = "lap") -> Iterator[None]:
        """Time a block as one lap of that name."""
        self._start(name)
        try:
            yield
        except BaseException:
            del self._running[name]
            raise
        passed_ns = self._stop(name)
        self._laps.setdefault(name, []).append(passed_ns)

    def __enter__(self) -> "Timer":
        self._start(None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._ns = self._stop(None)
        else:
            self._ns = time.perf_counter_ns() - self._running.pop(None)

    def __str__(self) -> str:
        rows = [
            [name, f"{laps.count}", *(_text(getattr(laps, f"{stat}_s")) for stat in _COLUMNS[1:])]
            for name, laps in self.laps.items()
        ]
        lines = _table([["", *_COLUMNS], *rows]) if rows else []
        if self._ns is not None:
            lines.append(f"whole block: {_text(self._ns / 1e9)}")
        return "\n".join(lines) if lines else "Timer: nothing measured yet"

    def _start(self, name: str | None) -> None:
        here = threading.get_ident()
        if self._thread is None:
            self._thread = here
        if self._thread != here:
            raise UsageError("A Timer belongs to one thread. Make one for each thread.")
        if name in self._running:
            what = "block" if name is None else f'lap "{name}"'
            raise UsageError(f"This timer's {what} is running already. Give the inner one a name.")
        self._wait()
        self._running[name] = time.perf_counter_ns()

    def _stop(self, name: str | None) -> int:
        try:
            self._wait()
        finally:
            passed_ns = time.perf_counter_ns() - self._running.pop(name)
        return passed_ns

    def _wait(self) -> None:
        if self._waits:
            _wait_for(self._device)


def _parsed(device: "str | torch.device | None") -> "torch.device | None":
    if device is None:
        return None
    import torch

    try:
        parsed = torch.device(device)
        torch.get_device_module(parsed)
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise UsageError(f'device is {device!r}; expected "cuda:0" or "cpu": {first}') from None
    return parsed


def _wait_for(device: "torch.device | None") -> None:
    # Who has not imported torch has queued nothing with it.
    torch = sys.modules.get("torch")
    if torch is None:
        return
    kind = torch.accelerator.current_accelerator() if device is None else device
    if kind is None:
        return
    module = torch.get_device_module(kind)
    # Where there is no `is_initialized`, as on MPS, waiting starts nothing that forking minds.
    if not getattr(module, "is_initialized", module.is_available)():
        return
    for each in _devices_in_use(torch, kind) if device is None else [device]:
        torch.accelerator.synchronize(each)


def _devices_in_use(torch: Any, kind: "torch.device") -> list[int | None]:
    """None is the current one. Waiting for a GPU that nobody used would take memory on it."""
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if kind.type != "cuda" or has_context is None:
        return [None]
    return [index for index in range(torch.cuda.device_count()) if has_context(index)]


def _text(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    value = seconds / size
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
