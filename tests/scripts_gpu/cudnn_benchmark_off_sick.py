# truth: rule=cudnn-benchmark-off cost_ms=measured at="model(x)"
"""Unusual convolutions whose algorithm cuDNN guesses."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
x = torch.randn(size(96, 4), 48, size(75, 9), size(75, 9), device=DEVICE).to(DTYPE)
x = x.contiguous(memory_format=torch.channels_last)
y = torch.randint(0, 16, (x.shape[0],), device=DEVICE)
loader = DataLoader(Batches(x, y), batch_size=None)
layers = []
for kernel, groups in ((7, 1), (5, 4), (3, 1), (5, 1)) * size(2, 1):
    layers += [
        torch.nn.Conv2d(48, 48, kernel, padding=kernel // 2, groups=groups, bias=False),
        torch.nn.ReLU(),
    ]
layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(48, 16)]
model = torch.nn.Sequential(*layers).to(DEVICE, DTYPE)
model = model.to(memory_format=torch.channels_last)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()

for x, y in loader:
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    clock.step()
clock.report()
