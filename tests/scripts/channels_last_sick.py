# truth: rule=channels-last cost_ms=measured at="model(x)"
"""Large convolutions in the order that suits them least."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        self.x = torch.randn(8, 16, 32, 32)
        self.y = torch.randint(0, 10, (8,))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


class Net(torch.nn.Module):
    """Large kernels, as in networks that restore images."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(16, 16, 7, padding=3)
        self.second = torch.nn.Conv2d(16, 16, 7, padding=3)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x))
        return self.head(x.mean(dim=(2, 3)))


torch.manual_seed(0)
loader = DataLoader(Batches(40), batch_size=None)
model = Net()
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

began = time.perf_counter()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()

print(f"STEP_MS={(time.perf_counter() - began) / 40 * 1000:.3f}")
