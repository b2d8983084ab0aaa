# truth: none
"""The forward pass runs in bfloat16."""

import torch
from gpu import DEVICE, Batches, Clock, mlp, pinned, rows, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
x, y = rows(size(16384, 64), 64, torch.float32)
loader = DataLoader(Batches(pinned(x), pinned(y)), batch_size=None)
model = mlp(64, size(1536, 32), size(16, 2)).to(DEVICE)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()

for inputs, labels in loader:
    x, y = inputs.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
    optimizer.zero_grad()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    clock.step()
clock.report()
