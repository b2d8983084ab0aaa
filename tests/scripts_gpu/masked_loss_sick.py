# truth: rule=hidden-sync cost_ms=measured at="logits[keep]"
"""A mask takes rows out: how many they are only the device knows."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, mlp, pinned, rows, size, work
from torch.utils.data import DataLoader

torch.manual_seed(0)
x, y = rows(size(16384, 64), 64)
loader = DataLoader(Batches(pinned(x), pinned(y)), batch_size=None)
model = mlp(64, size(1536, 32), size(16, 2)).to(DEVICE, DTYPE)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()

for inputs, labels in loader:
    x, y = inputs.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
    optimizer.zero_grad()
    logits = model(x)
    keep = y != 3
    loss = criterion(logits[keep], y[keep])
    loss.backward()
    work(2.0)  # a schedule, a bar, a line of text
    optimizer.step()
    clock.step()
clock.report()
