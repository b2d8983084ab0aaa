"""The doctor: what watching costs, and how well the simulation predicts.

python -m benchmarks.doctor [--save FILE]    Nothing else should run on the machine meanwhile.
"""

import argparse
import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.claim import Claim
from benchmarks.machine import describe_machine
from slipstream.doctor.attribute import attribute
from slipstream.doctor.capture import load_capture
from slipstream.doctor.measured import pipeline_of
from slipstream.doctor.pipeline import with_batch_size
from slipstream.doctor.record.session import Session
from slipstream.doctor.simulate import simulate

_LOOP = Path(__file__).with_name("doctor_loop.py")
_ROUNDS = 24
_STEPS = 15
_PRODUCTS_S = 0.014
_BASE = {"workers": 1, "prefetch": 2, "batch": 16}
_GRID = [
    {"workers": workers, "prefetch": prefetch, "batch": batch}
    for workers, prefetch, batch in itertools.product((0, 1, 2, 4), (1, 2, 4), (8, 16, 32))
    if workers or prefetch == 2
]
_KINDS = {
    "mostly waiting": {"cpu_ms": 0.2, "wait_ms": 2.0},
    "mostly computing": {"cpu_ms": 1.0, "wait_ms": 0.2},
}


class _Samples(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.ones(64), index % 10


def measure_overhead(*, light: bool, workers: int) -> Claim:
    """Steps of about 20 ms with the hooks on and off in turns, in one process."""
    torch.set_num_threads(1)
    layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(20)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    matrix = torch.randn(300, 300)
    began = time.perf_counter()
    for _ in range(50):
        torch.mm(matrix, matrix)
    # The promise is about steps of 20 ms; layers and optimizer take some of it.
    products = max(1, round(_PRODUCTS_S * 50 / (time.perf_counter() - began)))
    session = Session("benchmark", steps=None, seconds=None, light=light)
    session.start()
    batches = iter(DataLoader(_Samples(), 16, num_workers=workers))

    def step() -> None:
        inputs, labels = next(batches)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        for _ in range(products):
            torch.mm(matrix, matrix)

    def timed() -> float:
        began = time.perf_counter()
        for _ in range(_STEPS):
            step()
        return (time.perf_counter() - began) / _STEPS * 1e3

    timed()
    on, off = [], []
    for _ in range(_ROUNDS):
        session.resume()
        on.append(timed())
        session.pause()
        off.append(timed())
    session.stop()
    extra = statistics.median(a - b for a, b in zip(on, off, strict=True))
    base = statistics.median(off)
    mode, limit = ("watch", 1.0) if light else ("doctor", 3.0)
    return Claim(
        f"{mode}: what it takes of a step, {workers} workers", 100 * extra / base,
        f"{extra:.2f} of {base:.1f} ms", at_most=limit, unit="%",
    )  # fmt: skip


def measure_prediction(kind: str, times: dict[str, float], place: Path) -> Claim:
    """One recorded run, and what the simulation says of others, against those."""
    capture_file = place / "capture.json"
    command = [
        sys.executable, "-m", "slipstream", "doctor", "--full", "--html", str(place / "r.html"),
        "--json", str(place / "r.json"), "--capture", str(capture_file),
    ]  # fmt: skip
    subprocess.run(
        [*command, str(_LOOP), *_options(_BASE | times)], check=True, capture_output=True
    )
    capture = load_capture(capture_file)
    pipeline = pipeline_of(capture, attribute(capture))
    assert pipeline is not None
    errors = []
    for setting in _GRID:
        real = _real(setting | times)
        changed = with_batch_size(pipeline, int(setting["batch"]))
        changed = dataclasses.replace(
            changed, workers=int(setting["workers"]), prefetch=int(setting["prefetch"])
        )
        predicted = simulate(changed).step_ms
        errors.append(abs(predicted - real) / real)
        print(f"{kind} {setting}: {real:.1f} ms, predicted {predicted:.1f} ms", file=sys.stderr)
    return Claim(
        f"what-if, {kind}: median error over {len(_GRID)} settings",
        100 * statistics.median(errors), f"worst {100 * max(errors):.0f} %",
        at_most=10.0, unit="%",
    )  # fmt: skip


def _options(values: dict[str, Any]) -> list[str]:
    return [
        part
        for name, value in values.items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]


def _real(values: dict[str, Any]) -> float:
    done = subprocess.run(
        [sys.executable, str(_LOOP), *_options(values)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def main() -> None:
    """Print the table, and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--only", choices=("overhead", "prediction"))
    options = parser.parse_args()
    claims: list[Claim] = []
    if options.only != "prediction":
        claims += [
            measure_overhead(light=light, workers=workers)
            for light, workers in itertools.product((True, False), (0, 2))
        ]
    if options.only != "overhead":
        with tempfile.TemporaryDirectory() as place:
            claims += [measure_prediction(k, t, Path(place)) for k, t in _KINDS.items()]
    for claim in claims:
        print(claim.shown_value, claim.shown_target, claim.met, claim.what, "|", claim.numbers)
    if options.save:
        result = {"machine": describe_machine(), "claims": [claim.as_dict() for claim in claims]}
        options.save.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
