# truth: rule=python-in-loop cost_ms=measured at="np.linalg.svd"
"""Singular values of a matrix, with NumPy, for every batch."""

import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        self.x = torch.randn(32, 64)
        self.y = torch.randint(0, 10, (32,))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


torch.manual_seed(0)
loader = DataLoader(Batches(200), batch_size=None)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

began = time.perf_counter()
for x, y in loader:
    np.linalg.svd(np.outer(x[0].numpy(), x[1].numpy()) + np.eye(64))
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()

print(f"STEP_MS={(time.perf_counter() - began) / 200 * 1000:.3f}")
