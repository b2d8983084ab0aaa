# truth: rule=repeated-work cost_ms=measured
"""The optimizer is made again in every step."""

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(32, 64, generator=generator)
        self.y = torch.randint(0, 10, (32,), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


loader = DataLoader(Batches(40), batch_size=None)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(40)), torch.nn.Linear(64, 10))
criterion = torch.nn.CrossEntropyLoss()
optimizer = None

for x, y in loader:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)  # here
    model.to(torch.float64).to(torch.float32)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
