# truth: rule=crowded-cores cost_ms=measured
"""Samples are made from noise by two workers, while the model computes on the same cores."""

import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

ROUNDS = 6


class Waves(Dataset):
    def __len__(self):
        return 16 * 70

    def __getitem__(self, index):
        chance = np.random.default_rng(index)
        x = chance.standard_normal(24_000)
        for _ in range(ROUNDS):
            x = np.sin(x) + 0.1 * chance.standard_normal(24_000)
        return torch.from_numpy(x[:1024].astype(np.float32)), index % 10


torch.manual_seed(0)
model = torch.nn.Sequential(
    *(torch.nn.Linear(1024, 1024) for _ in range(3)), torch.nn.ReLU(), torch.nn.Linear(1024, 10)
)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

if __name__ == "__main__":
    began = None
    for x, y in DataLoader(Waves(), batch_size=16, num_workers=2):
        began = began or time.perf_counter()
        optimizer.zero_grad()
        criterion(model(x.repeat(8, 1)), y.repeat(8)).backward()
        optimizer.step()
    print(f"STEP_MS={(time.perf_counter() - began) / 70 * 1000:.3f}")
