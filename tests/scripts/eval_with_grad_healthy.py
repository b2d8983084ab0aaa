# truth: healthy
"""A validation loop in inference mode."""

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


training, validation = (
    DataLoader(Batches(10), batch_size=None),
    DataLoader(Batches(5), batch_size=None),
)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(40)), torch.nn.Linear(64, 10))
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)


@torch.inference_mode()
def validate():
    """The loss on other data."""
    model.eval()
    total = 0.0
    for x, y in validation:
        total += criterion(model(x), y).item()
    return total / len(validation)


for _ in range(6):
    model.train()
    for x, y in training:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    validate()
