# truth: rule=for-loop-optimizer cost_ms=measured
"""Adam on many small parameters, one by one."""

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(8, 16, generator=generator)
        self.y = torch.randint(0, 10, (8,), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


loader = DataLoader(Batches(60), batch_size=None)
model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(80)), torch.nn.Linear(16, 10))
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)  # here

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
