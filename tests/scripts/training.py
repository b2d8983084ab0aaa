"""What the scripts here have in common: a model that is busy for a known time, and its loop."""

import time

import torch


class Model(torch.nn.Module):
    """Stands for one on a device: its time is the same, whatever else the machine does."""

    def __init__(self, busy_s):
        super().__init__()
        self.busy_s = busy_s
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        time.sleep(self.busy_s)
        return self.weight * x.flatten()[:64].float().mean()


class Training:
    def __init__(self, busy_ms=10.0):
        self.model = Model(busy_ms / 1000)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.steps = 0
        self.began = time.perf_counter()

    def epoch(self, loader):
        for x, _ in loader:
            loss = self.model(x) ** 2
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.steps += 1

    def report(self):
        """For the one who scores the doctor: what a step takes without it."""
        print(f"STEP_MS={(time.perf_counter() - self.began) / self.steps * 1000:.3f}")


def work(ms):
    """Keep a core busy for so long."""
    end = time.perf_counter() + ms / 1000
    while time.perf_counter() < end:
        pass
