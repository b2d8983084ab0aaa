# truth: rule=frequent-evaluation cost_ms=measured at="for inputs, labels in validation"
"""Validation after every fourth step."""

import time

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
loader = DataLoader(Batches(60), batch_size=None)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(20)), torch.nn.Linear(64, 10))
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)
validation = DataLoader(Batches(12), batch_size=None)

began = time.perf_counter()
for number, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    if number % 4 == 0:
        model.eval()
        with torch.inference_mode():
            for inputs, labels in validation:
                criterion(model(inputs), labels)
        model.train()

print(f"STEP_MS={(time.perf_counter() - began) / 60 * 1000:.3f}")
