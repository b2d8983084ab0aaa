# truth: healthy
"""A moving average of all parameters at once."""

import copy

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(512, 64, generator=generator)
        self.y = torch.randint(0, 10, (512,), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


loader = DataLoader(Batches(50), batch_size=None)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(20)), torch.nn.Linear(64, 10))
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)
average = list(copy.deepcopy(model).parameters())
new = list(model.parameters())

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        torch._foreach_lerp_(average, new, 0.01)
