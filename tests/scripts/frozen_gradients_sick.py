# truth: rule=frozen-gradients cost_ms=measured
"""A body that is not trained, with gradients."""

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(128, 256, generator=generator)
        self.y = torch.randint(0, 10, (128,), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


class Classifier(torch.nn.Module):
    """A part that was trained before, and a new head."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
        self.head = torch.nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.body(x))


loader = DataLoader(Batches(40), batch_size=None)
model = Classifier()
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.01, foreach=True)  # here

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
