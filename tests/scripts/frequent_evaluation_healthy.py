# truth: healthy
"""Validation twice in an epoch."""

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(64, 64, generator=generator)
        self.y = torch.randint(0, 10, (64,), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


training, validation = (
    DataLoader(Batches(60), batch_size=None),
    DataLoader(Batches(4), batch_size=None),
)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(20)), torch.nn.Linear(64, 10))
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

for number, (x, y) in enumerate(training):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    if number % 30 == 0:
        model.eval()
        with torch.inference_mode():
            for inputs, labels in validation:
                criterion(model(inputs), labels)
        model.train()
