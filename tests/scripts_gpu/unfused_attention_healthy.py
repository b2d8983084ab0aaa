# truth: none
"""Attention in one kernel."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, size
from torch.utils.data import DataLoader


class Attention(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inputs = torch.nn.Linear(width, 3 * width, bias=False)
        self.outputs = torch.nn.Linear(width, width, bias=False)

    def forward(self, x):
        count, length, width = x.shape
        split = self.inputs(x).view(count, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.outputs(mixed.transpose(1, 2).reshape(count, length, width))


torch.manual_seed(0)
width = size(768, 32)
x = torch.randn(size(8, 2), size(1024, 16), width).to(DTYPE)
y = torch.randn(size(8, 2), size(1024, 16), width).to(DTYPE)
loader = DataLoader(Batches(x.to(DEVICE), y.to(DEVICE)), batch_size=None)
model = torch.nn.Sequential(*(Attention(width, size(12, 2)) for _ in range(size(8, 2))))
model = model.to(DEVICE, DTYPE)
criterion = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()

for x, y in loader:
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    clock.step()
clock.report()
