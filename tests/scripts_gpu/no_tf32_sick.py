# truth: rule=no-tf32 cost_ms=measured at="model(x)"
"""Products in full float32, without the tensor cores."""

import torch
from gpu import DEVICE, Batches, Clock, mlp, pinned, rows, size
from torch.utils.data import DataLoader


class Exact(torch.nn.Module):
    """Its products need more than the eight bits of bfloat16, whatever is around them."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        with torch.autocast(DEVICE, enabled=False):
            return self.layers(x)


torch.manual_seed(0)
x, y = rows(size(4096, 64), 64, torch.float32)
loader = DataLoader(Batches(pinned(x), pinned(y)), batch_size=None)
model = Exact(mlp(64, size(1536, 32), size(16, 2))).to(DEVICE)
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
