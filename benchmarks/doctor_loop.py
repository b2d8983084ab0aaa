"""A training loop of known times, for benchmarks/doctor.py: prints its mean step."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset

STEP_MS = 12.0  # of the loop itself


def spin(ms: float) -> None:
    """Work for one core, that takes so long where it has one to itself."""
    until = time.thread_time() + ms / 1e3
    while time.thread_time() < until:
        pass


class Samples(Dataset[tuple[torch.Tensor, int]]):
    """Each sample takes some time of a core, and some of a storage that is not there."""

    def __init__(self, count: int, cpu_ms: float, wait_ms: float) -> None:
        self._count, self._cpu_ms, self._wait_ms = count, cpu_ms, wait_ms

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self._wait_ms / 1e3)
        spin(self._cpu_ms)
        return torch.zeros(64), index % 10


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    for name, kind, default in (
        ("--workers", int, 1), ("--prefetch", int, 2), ("--batch", int, 16),
        ("--cpu-ms", float, 0.5), ("--wait-ms", float, 1.0), ("--steps", int, 80),
    ):  # fmt: skip
        parser.add_argument(name, type=kind, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = Samples(options.batch * options.steps, options.cpu_ms, options.wait_ms)
    ahead = {"prefetch_factor": options.prefetch} if options.workers else {}
    loader = DataLoader(data, options.batch, num_workers=options.workers, **ahead)
    skipped = options.steps // 4
    for number, (inputs, labels) in enumerate(loader):
        if number == skipped:
            began = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        spin(STEP_MS * options.batch / 16)
    print((time.perf_counter() - began) / (options.steps - skipped) * 1e3)


if __name__ == "__main__":
    main()
