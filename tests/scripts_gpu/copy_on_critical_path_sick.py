# truth: rule=copy-on-critical-path cost_ms=measured at="inputs.to(DEVICE, non_blocking=True)"
"""Large batches stand in line with the work of the device."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, mlp, pinned, rows, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
x, y = rows(size(8192, 64), size(8192, 16))
loader = DataLoader(Batches(pinned(x), pinned(y)), batch_size=None)
model = mlp(size(8192, 16), size(4096, 32), size(6, 2)).to(DEVICE, DTYPE)
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
