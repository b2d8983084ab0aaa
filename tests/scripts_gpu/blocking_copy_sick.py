# truth: rule=blocking-copy cost_ms=measured at="inputs.to(DEVICE)"
"""Page-locked batches, and a loop that waits for their copy."""

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
    x, y = inputs.to(DEVICE), labels.to(DEVICE)
    work(2.0)  # names and weights of the samples are put together
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    clock.step()
clock.report()
