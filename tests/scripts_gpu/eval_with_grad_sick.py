# truth: rule=eval-with-grad cost_ms=measured at="total += criterion(model(x), y)"
"""A validation loop over small batches with gradients on."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, mlp, pinned, rows, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
x, y = rows(size(16384, 64), 64)
loader = DataLoader(Batches(pinned(x), pinned(y), 10), batch_size=None)
few, classes = (pinned(tensor) for tensor in rows(8, 64))
validation = DataLoader(Batches(few, classes, 30), batch_size=None)
model = mlp(64, size(1536, 32), size(60, 2)).to(DEVICE, DTYPE)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()

for _ in range(size(12, 2)):
    model.train()
    for inputs, labels in loader:
        x, y = inputs.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        clock.step()
    model.eval()
    total = torch.zeros((), device=DEVICE)
    for inputs, labels in validation:
        x, y = inputs.to(DEVICE), labels.to(DEVICE)
        total += criterion(model(x), y).detach()
clock.report()
