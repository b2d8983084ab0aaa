"""What the scripts here have in common: a device, batches that are there already, and a clock."""

import time

import torch
from torch.utils.data import Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
IS_SMALL = DEVICE == "cpu"  # only to see that a script runs
DTYPE = torch.float32 if IS_SMALL else torch.bfloat16
STEPS = 8 if IS_SMALL else 120
_WARM_UP = 2 if IS_SMALL else 10


def size(full, small):
    """A size for the device, and one to try a script without it."""
    return small if IS_SMALL else full


def pinned(tensor):
    """In page-locked memory, where there is a device."""
    return tensor if IS_SMALL else tensor.pin_memory()


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, x, y, count=STEPS):
        self.x, self.y = x, y
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


def mlp(inputs, width, depth, outputs=16):
    """Large products, one after the other."""
    layers = [torch.nn.Linear(inputs, width), torch.nn.ReLU()]
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, outputs))


def rows(count, features, dtype=DTYPE):
    """A batch of rows with their classes, in the processor's memory."""
    return torch.randn(count, features).to(dtype), torch.randint(0, 16, (count,))


def wait():
    """Until the device is done."""
    if not IS_SMALL:
        torch.cuda.synchronize()


def work(ms):
    """Keep the loop's thread busy for so long."""
    end = time.perf_counter_ns() + int(ms * 1e6)
    while time.perf_counter_ns() < end:
        pass


class Clock:
    """What a step takes without the doctor, once all is warm; for the one who scores it."""

    def __init__(self):
        self.steps = 0
        self.began = None

    def step(self, count=1):
        """So many more are over."""
        self.steps += count
        if self.began is None and self.steps >= _WARM_UP:
            wait()
            self.steps, self.began = 0, time.perf_counter_ns()

    def report(self):
        """In the form that the score reads."""
        wait()
        print(f"STEP_MS={(time.perf_counter_ns() - self.began) / self.steps / 1e6:.3f}")
