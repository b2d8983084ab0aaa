# truth: rule=logging-in-loop cost_ms=measured
"""A table written anew in every step."""

import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(32, 64, generator=generator)
        self.y = torch.randint(0, 10, (32,), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


path = Path(tempfile.mkdtemp()) / "table.csv"
rows = [f"{n},{n * n}\n" for n in range(40000)]

loader = DataLoader(Batches(50), batch_size=None)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    with path.open("w") as file:
        file.writelines(rows)  # here
