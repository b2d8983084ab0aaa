# truth: rule=unused-parameters cost_ms=measured
"""A head whose result nobody uses."""

import torch
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


class Classifier(torch.nn.Module):
    """With a second head."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(256, 256)
        self.head = torch.nn.Linear(256, 10)
        self.other = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))

    def forward(self, x):
        x = self.body(x)
        self.other(x)  # here
        return self.head(x)


loader = DataLoader(Batches(50), batch_size=None)
model = Classifier()
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
