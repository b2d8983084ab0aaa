# truth: rule=pageable-copy cost_ms=measured at="inputs.to(DEVICE)"
"""Batches lie in pageable memory: the driver copies them twice, and the loop waits."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, mlp, rows, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
x, y = rows(size(8192, 64), size(768, 16))
loader = DataLoader(Batches(x, y), batch_size=None)
model = mlp(size(768, 16), size(4096, 32), size(8, 2)).to(DEVICE, DTYPE)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()

for inputs, labels in loader:
    x, y = inputs.to(DEVICE), labels.to(DEVICE)
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    clock.step()
clock.report()
