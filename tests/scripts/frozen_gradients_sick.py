# truth: rule=frozen-gradients cost_ms=measured at="model.head.parameters()"
"""A body that is not trained, with gradients."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        self.x = torch.randn(128, 256)
        self.y = torch.randint(0, 10, (128,))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


class Classifier(torch.nn.Module):
    """A body, a head, and another one."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(6)))
        self.head = torch.nn.Linear(256, 10)
        self.other = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(6)))

    def forward(self, x):
        x = self.body(x)
        return self.head(x)


torch.manual_seed(0)
loader = DataLoader(Batches(40), batch_size=None)
model = Classifier()
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.01, foreach=True)

began = time.perf_counter()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()

print(f"STEP_MS={(time.perf_counter() - began) / 40 * 1000:.3f}")
