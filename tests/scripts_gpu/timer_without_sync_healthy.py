# truth: none
"""The device measures the time itself."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, mlp, pinned, rows, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
x, y = rows(size(16384, 64), 64)
loader = DataLoader(Batches(pinned(x), pinned(y)), batch_size=None)
model = mlp(64, size(1536, 32), size(16, 2)).to(DEVICE, DTYPE)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()


def moment():
    """On the device's own clock, to be read when all is over."""
    if DEVICE != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


passed = []
for inputs, labels in loader:
    x, y = inputs.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
    began = moment()
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    passed.append((began, moment()))
    clock.step()
clock.report()
