# truth: rule=launch-bound cost_ms=measured at="model(x)"
"""Two pictures at a time: a step takes as long as with many."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, pinned, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
COUNT = 2
x = torch.randn(COUNT, 3, 32, 32).to(DTYPE)
x = x.contiguous(memory_format=torch.channels_last)
y = torch.randint(0, 16, (COUNT,))
loader = DataLoader(Batches(pinned(x), pinned(y)), batch_size=None)
layers = [torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)]
for _ in range(size(30, 2)):
    layers += [torch.nn.Conv2d(64, 64, 3, padding=1, bias=False), torch.nn.ReLU()]
layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 16)]
model = torch.nn.Sequential(*layers).to(DEVICE, DTYPE)
model = model.to(memory_format=torch.channels_last)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()

for inputs, labels in loader:
    x, y = inputs.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    clock.step(COUNT // 2)  # a step's worth is what two pictures take
clock.report()
