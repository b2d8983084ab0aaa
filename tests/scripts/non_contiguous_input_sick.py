# truth: rule=non-contiguous-input cost_ms=measured
"""Images with their sides exchanged, as views."""

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(8, 16, 64, 64, generator=generator)
        self.y = torch.randint(0, 10, (8,), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


class Net(torch.nn.Module):
    """Two convolutions."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(16, 16, 3, padding=1)
        self.second = torch.nn.Conv2d(16, 16, 3, stride=4)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))  # here
        x = torch.relu(self.second(x))
        return self.head(x.mean(dim=(2, 3)))


loader = DataLoader(Batches(40), batch_size=None)
model = Net()
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x.transpose(2, 3)), y)
    loss.backward()
    optimizer.step()
