# truth: healthy
"""A step with the usual small things between its parts."""

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(256, 64, generator=generator)
        self.y = torch.randint(0, 10, (256,), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


loader = DataLoader(Batches(50), batch_size=None)
model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
seen = 0
history = []

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    seen += len(y)
    history.append(loss.item())
    learning_rate = optimizer.param_groups[0]["lr"]
    if seen % 2560 == 0:
        print(f"{seen}: {history[-1]:.3f}, {learning_rate}")
