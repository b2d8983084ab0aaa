# truth: rule=allocator-thrash cost_ms=0
"""Sequences get longer with every step: no block of memory fits the next."""

import torch
from gpu import DEVICE, DTYPE, STEPS, Clock, size
from torch.utils.data import DataLoader, Dataset


class Sequences(Dataset):
    """On the device already."""

    def __init__(self):
        self.rows = torch.randn(size(20000, 100), 512, device=DEVICE).to(DTYPE)

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        return self.rows[: size(2048, 20) + size(144, 4) * index]


torch.manual_seed(0)
loader = DataLoader(Sequences(), batch_size=None)
layers = []
for _ in range(2):
    layers += [torch.nn.Linear(512, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 512)]
model = torch.nn.Sequential(*layers).to(DEVICE, DTYPE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
clock = Clock()

for x in loader:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    clock.step()
clock.report()
