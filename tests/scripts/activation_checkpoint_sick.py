# truth: rule=activation-checkpoint cost_ms=measured
"""Activations computed twice."""

import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(256, 256, generator=generator)
        self.y = torch.randint(0, 10, (256,), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


loader = DataLoader(Batches(50), batch_size=None)
body = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
head = torch.nn.Linear(256, 10)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.01, foreach=True)

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(head(checkpoint(body, x, use_reentrant=False)), y)  # here
    loss.backward()
    optimizer.step()
