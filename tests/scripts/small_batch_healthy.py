# truth: none
"""Twice as many in a batch: what two samples take of a step is printed."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        self.x = torch.randn(4, 2048)
        self.y = torch.randint(0, 10, (4,))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


torch.manual_seed(0)
loader = DataLoader(Batches(40), batch_size=None)
model = torch.nn.Sequential(
    torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU(),
    torch.nn.Linear(2048, 10),
)  # fmt: skip
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

began = time.perf_counter()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()

print(f"STEP_MS={(time.perf_counter() - began) / 40 / 2 * 1000:.3f}")
