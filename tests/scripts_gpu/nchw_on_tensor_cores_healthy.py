# truth: none
"""The channels of a pixel lie side by side."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
x = torch.randn(size(64, 4), 128, size(56, 8), size(56, 8), device=DEVICE).to(DTYPE)
x = x.contiguous(memory_format=torch.channels_last)
y = torch.randint(0, 16, (x.shape[0],), device=DEVICE)
loader = DataLoader(Batches(x, y), batch_size=None)
layers = []
for _ in range(size(12, 2)):
    layers += [torch.nn.Conv2d(128, 128, 3, padding=1, bias=False), torch.nn.ReLU()]
layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 16)]
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
