# truth: rule=for-loop-optimizer cost_ms=measured at="torch.optim.Adam"
"""Adam goes through many parameters one by one."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, mlp, pinned, rows, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
x, y = rows(size(16384, 64), 64)
loader = DataLoader(Batches(pinned(x), pinned(y)), batch_size=None)
model = mlp(64, size(1024, 32), size(60, 2)).to(DEVICE, DTYPE)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
clock = Clock()

for inputs, labels in loader:
    x, y = inputs.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    clock.step()
clock.report()
