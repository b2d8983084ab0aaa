# truth: rule=anomaly-detection cost_ms=measured
"""CUDA_LAUNCH_BLOCKING, left from the search for a bug."""

import os

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, mlp, pinned, rows, size
from torch.utils.data import DataLoader

os.environ["CUDA_LAUNCH_BLOCKING"] = "1"  # before the device is used
torch.manual_seed(0)
x, y = rows(size(16384, 64), 64)
loader = DataLoader(Batches(pinned(x), pinned(y)), batch_size=None)
model = mlp(64, size(1024, 32), size(30, 2)).to(DEVICE, DTYPE)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()

for inputs, labels in loader:
    x, y = inputs.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    clock.step()
clock.report()
