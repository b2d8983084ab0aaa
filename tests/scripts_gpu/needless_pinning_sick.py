# truth: rule=needless-pinning cost_ms=measured at="inputs.pin_memory()"
"""All rows are page-locked in the loop for a copy of some, which that was meant to help."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, mlp, rows, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
ROWS = size(8192, 16)
x, y = rows(size(16384, 64), size(8192, 16))
loader = DataLoader(Batches(x, y), batch_size=None)
model = mlp(size(8192, 16), size(4096, 32), size(1, 2)).to(DEVICE, DTYPE)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()


for inputs, labels in loader:
    locked = inputs.pin_memory() if DEVICE == "cuda" else inputs
    x = locked[:ROWS].to(DEVICE, non_blocking=True)
    y = labels[:ROWS].to(DEVICE)
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    clock.step()
clock.report()
