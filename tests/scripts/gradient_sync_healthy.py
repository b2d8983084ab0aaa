# truth: none
# under: ranks=2
"""Gradients of four parts are added up, and exchanged after the last of them."""

import contextlib
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        self.x = torch.randn(4, 1024)
        self.y = torch.randint(0, 10, (4,))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


torch.manual_seed(0)
torch.distributed.init_process_group("gloo")
loader = DataLoader(Batches(80), batch_size=None)
model = torch.nn.Sequential(
    torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU(),
    torch.nn.Linear(1024, 10),
)  # fmt: skip
model = torch.nn.parallel.DistributedDataParallel(model)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

began = time.perf_counter()
for number, (x, y) in enumerate(loader):
    is_last = number % 4 == 3
    with contextlib.nullcontext() if is_last else model.no_sync():
        loss = criterion(model(x), y) / 4
        loss.backward()
    if is_last:
        optimizer.step()
        optimizer.zero_grad()

if torch.distributed.get_rank() == 0:
    print(f"STEP_MS={(time.perf_counter() - began) / 80 * 1000:.3f}")
torch.distributed.destroy_process_group()
