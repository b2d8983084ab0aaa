# truth: rule=profiler-left-on cost_ms=measured at="profiler.start()"
"""A profiler around the whole training."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        self.x = torch.randn(16, 64)
        self.y = torch.randint(0, 10, (16,))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


torch.manual_seed(0)
loader = DataLoader(Batches(50), batch_size=None)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(30)), torch.nn.Linear(64, 10))
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

profiler = torch.profiler.profile(record_shapes=True, with_stack=True)
profiler.start()

began = time.perf_counter()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()

print(f"STEP_MS={(time.perf_counter() - began) / 50 * 1000:.3f}")
profiler.stop()
