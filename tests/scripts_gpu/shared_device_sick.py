# truth: rule=shared-device cost_ms=0
"""Another process computes on the same device."""

import subprocess
import sys

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, mlp, pinned, rows, size
from torch.utils.data import DataLoader

# Computes until nobody reads what it says.
_OTHER = """
import sys, torch
x = torch.randn(2048, 2048, device=sys.argv[1])
while True:
    for _ in range(20):
        y = x @ x
    print(float(y[0, 0]), flush=True)
"""
other = subprocess.Popen([sys.executable, "-c", _OTHER, DEVICE], stdout=subprocess.PIPE)
other.stdout.readline()  # it has begun

torch.manual_seed(0)
x, y = rows(size(8192, 64), 64)
loader = DataLoader(Batches(pinned(x), pinned(y)), batch_size=None)
model = mlp(64, size(2048, 32), size(16, 2)).to(DEVICE, DTYPE)
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
other.kill()
