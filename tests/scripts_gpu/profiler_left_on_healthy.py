# truth: none
"""The same without the fault."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, mlp, pinned, rows, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
x, y = rows(size(14336, 64), 64)
loader = DataLoader(Batches(pinned(x), pinned(y)), batch_size=None)
model = mlp(64, size(1024, 32), size(60, 2)).to(DEVICE, DTYPE)
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
