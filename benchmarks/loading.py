"""The loader against torch's DataLoader: the same data, the same workers, in turns."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import slipstream
from benchmarks.claim import Claim
from slipstream.augment import RandomHorizontalFlip, RandomResizedCrop
from slipstream.cpu import usable_cores
from slipstream.pack.pack import pack_source
from slipstream.pack.sources.detect import open_source

_ROUNDS = 5
_BATCH = 64
_EPOCH = 1000
_WINDOW = 1024
_TRANSFORM = slipstream.Augment(RandomResizedCrop(224), RandomHorizontalFlip())


def measure(peers: Path | None, files: list[Path], place: Path) -> list[Claim]:
    """Ratios of whole epochs, starts included, and of first batches."""
    return [*_measure_photos(peers, files, place), *_measure_any_dataset(place)]


def _measure_photos(peers: Path | None, files: list[Path], place: Path) -> list[Claim]:
    folder = place / "loading"
    folder.mkdir()
    for number in range(_EPOCH):
        (folder / f"{number:05d}.jpg").symlink_to(files[number % len(files)].absolute())
    packed = place / "loading.slip"
    pack_source(open_source(folder), packed)
    options = {"shuffle": True, "transform": _TRANSFORM}
    loaders = {
        name: slipstream.Loader(slipstream.open_dataset(path, fields=["image"]), _BATCH, **options)
        for name, path in (("packed", packed), ("files", folder))
    }
    ways: dict[str, Callable[[], tuple[float, float]]] = {
        name: lambda loader=loader: _run(loader)  # type: ignore[misc]
        for name, loader in loaders.items()
    }
    ways["engine"] = lambda: _run(_engine_batches(loaders["packed"]))
    with _Peer(peers, folder) as peer:
        if peer is not None:
            ways["pil"] = lambda: peer.run("pil")
            ways["opencv"] = lambda: peer.run("opencv")
        s, first = _take_turns(ways)
    first_of_new = _first_batch_of_new_process(packed)

    def rates(*names: str) -> str:
        return " against ".join(f"{_EPOCH / s[name]:,.0f}/s" for name in names)

    what = f"photos, RandomResizedCrop(224) + flip, batch {_BATCH}, {usable_cores()} cores"
    claims = [
        Claim(
            f"packed {what}: Loader against the engine alone",
            s["engine"] / s["packed"], rates("packed", "engine"), at_least=0.95,
        ),
        Claim(
            "first batch of packed photos, in a new process",
            first_of_new, f"{first['packed']:.3f} s in a later epoch", at_most=0.3, unit="s",
        ),
    ]  # fmt: skip
    if "pil" not in s:
        return [*claims, Claim("against DataLoader + PIL and OpenCV", None, "no peers")]
    return [
        Claim(
            f"packed {what}: against DataLoader + OpenCV",
            s["opencv"] / s["packed"], rates("packed", "opencv"), at_least=2.5,
        ),
        Claim(
            "the same against DataLoader + PIL",
            s["pil"] / s["packed"], rates("packed", "pil"), at_least=4,
        ),
        Claim(
            "the same photos unpacked, against DataLoader + PIL, whose bytes they have",
            s["pil"] / s["files"], rates("files", "pil"), at_least=2.5,
        ),
        Claim(
            "first batch of an epoch, packed, against DataLoader + PIL with workers that wait",
            first["pil"] / first["packed"], f"{first['packed']:.3f} against {first['pil']:.3f} s",
            at_least=1,
        ),
        *claims,
    ]  # fmt: skip


def _engine_batches(loader: Any) -> Iterator[Any]:
    """Batch after batch from the engine itself, without a loader around it."""
    from slipstream.loader.engine import Engine

    route = loader.choice.route
    engine = Engine(
        route.reader, route.lowered, seed=0, threads=usable_cores(), memory=loader._memory
    )
    for task in loader._tasks(0, 0, None):
        yield engine.make(task, 0).batch


def _first_batch_of_new_process(packed: Path) -> float:
    code = (
        "import time\n"
        "from slipstream import Loader, open_dataset\n"
        "from slipstream.augment import RandomHorizontalFlip, RandomResizedCrop\n"
        "began = time.perf_counter()\n"
        f"data = open_dataset({str(packed)!r}, fields=['image'])\n"
        f"loader = Loader(data, {_BATCH}, shuffle=True,"
        " transform=[RandomResizedCrop(224), RandomHorizontalFlip()])\n"
        "next(iter(loader))\n"
        "print(time.perf_counter() - began)\n"
    )
    found = []
    for _ in range(_ROUNDS):
        run = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        found.append(float(run.stdout))
    return statistics.median(found)


class _Peer:
    """DataLoaders with PIL and OpenCV in the peers' Python, one epoch at a time."""

    def __init__(self, python: Path | None, folder: Path) -> None:
        self._process = None
        if python is not None:
            command = [str(python), str(Path(__file__).with_name("loading_peer.py")), str(folder)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

    def __enter__(self) -> "_Peer | None":
        return self if self._process is not None else None

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(60)

    def run(self, way: str) -> tuple[float, float]:
        """Seconds of an epoch and of its first batch."""
        assert self._process is not None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{way} {_BATCH} {usable_cores()}\n")
        self._process.stdin.flush()
        whole, first = self._process.stdout.readline().split()
        return float(whole), float(first)


def _run(batches: Iterable[Any]) -> tuple[float, float]:
    """Seconds until the last and until the first batch; every page of every batch is read."""
    began, first = time.perf_counter(), None
    for batch in batches:
        _touch(batch)
        if first is None:
            first = time.perf_counter() - began
    assert first is not None
    return time.perf_counter() - began, first


def _touch(batch: Any) -> None:
    if isinstance(batch, torch.Tensor):
        batch.view(-1).view(torch.uint8)[::4096].sum()
    elif isinstance(batch, dict):
        for part in batch.values():
            _touch(part)
    elif isinstance(batch, (list, tuple)):
        for part in batch:
            _touch(part)


def _take_turns(
    ways: dict[str, Callable[[], tuple[float, float]]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Medians over rounds in which every way runs once; a round before them is not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(_ROUNDS + 1):
        for name, run in ways.items():
            found = run()
            if number > 0:
                times[name].append(found)
    whole = {name: statistics.median(t for t, _ in found) for name, found in times.items()}
    first = {name: statistics.median(t for _, t in found) for name, found in times.items()}
    return whole, first


class Floats(Dataset[Any]):
    """float32[3, 224, 224] from a cheap `__getitem__`."""

    def __init__(self, batches: int = 60) -> None:
        self.rows = torch.randn(128, 3, 224, 224)
        self.count = batches * _BATCH

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """A row and its number."""
        return self.rows[index % 128], index


class Blocks(Dataset[Any]):
    """Samples of 2 MB."""

    def __init__(self) -> None:
        self.rows = np.random.default_rng(0).integers(0, 255, (32, 2 << 20), dtype=np.uint8)

    def __len__(self) -> int:
        return 1024

    def __getitem__(self, index: int) -> Any:
        """A row."""
        return self.rows[index % 32]


class Numbers(Dataset[Any]):
    """Samples of 8 bytes."""

    def __init__(self) -> None:
        self.rows = np.random.default_rng(0).random(300 * 1024)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        """A number."""
        return self.rows[index]


class Pairs(Numbers):
    """An 8-byte tensor and a label."""

    def __init__(self) -> None:
        self.rows = torch.rand(100 * 1024, 2)

    def __getitem__(self, index: int) -> Any:
        """A small tensor and an int."""
        return self.rows[index], index


class Windows(Dataset[Any]):
    """Windows of one array of tokens, as training scripts of language models cut them."""

    def __init__(self, path: Path) -> None:
        self.tokens = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.tokens) // _WINDOW

    def __getitem__(self, index: int) -> torch.Tensor:
        """A window."""
        start = index * _WINDOW
        return torch.from_numpy(np.array(self.tokens[start : start + _WINDOW]))


def _measure_any_dataset(place: Path) -> list[Claim]:
    path = place / "tokens.npy"
    tokens = np.random.default_rng(0).integers(0, 50_000, 20_000 * _WINDOW, dtype=np.uint16)
    np.save(path, tokens)
    packed = place / "tokens.slip"
    pack_source(open_source(path, window=_WINDOW), packed)
    workers = {"num_workers": usable_cores()}
    windows = Windows(path)
    cases = [
        ("float tensors 3 x 224 x 224", Floats(), Floats(), 64, workers, 1.5),
        ("samples of 2 MB, batch 16", Blocks(), None, 16, workers, 1.5),
        ("8-byte samples, batch 1024", Numbers(), None, 1024, workers, 1.5),
        ("8-byte tensors with a label, batch 1024", Pairs(), None, 1024, workers, 1.0),
        ("windows of one array of tokens, packed", windows, packed, 32, workers, 3.0),
        ("the same windows from the same Dataset", windows, None, 32, workers, 1.0),
        ("num_workers=0, 8-byte samples, batch 1024", Numbers(), None, 1024, {}, 1.0),
    ]
    claims = []
    for what, dataset, other, batch, options, target in cases:
        mine = slipstream.open_dataset(other) if isinstance(other, Path) else other or dataset
        ours = slipstream.Loader(mine, batch, shuffle=True, **options)
        theirs = DataLoader(dataset, batch, shuffle=True, **options)
        ways = {"ours": partial(_run, ours), "torch": partial(_run, theirs)}
        s, first = _take_turns(ways)
        batches = len(theirs)
        rates = f"{batches / s['ours']:,.0f} against {batches / s['torch']:,.0f} batches/s"
        claims.append(
            Claim(f"{what}: against DataLoader", s["torch"] / s["ours"], rates, at_least=target)
        )
        claims.append(
            Claim(
                "  its first batch", first["torch"] / first["ours"],
                f"{1e3 * first['ours']:.0f} against {1e3 * first['torch']:.0f} ms", at_least=1.0,
            )
        )  # fmt: skip
    return claims
