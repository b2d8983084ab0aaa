# truth: none
"""Gradients are dropped behind the step, not before the next pass."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        self.x = torch.randn(16, 3, 32, 32)
        self.y = torch.randint(0, 10, (16,))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


torch.manual_seed(0)
loader = DataLoader(Batches(60), batch_size=None)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3),
    torch.nn.ReLU(),
    torch.nn.Conv2d(16, 16, 3),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(16, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

began = time.perf_counter()
for x, y in loader:
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()

print(f"STEP_MS={(time.perf_counter() - began) / 60 * 1000:.3f}")
