# truth: rule=unfolded-batchnorm cost_ms=measured
"""Inference with batch norms behind convolutions."""

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(16, 8, 64, 64, generator=generator)
        self.y = torch.randint(0, 10, (16,), generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


class Net(torch.nn.Module):
    """Convolutions with batch norms."""

    def __init__(self):
        super().__init__()
        layers = []
        for _ in range(6):
            layers += [torch.nn.Conv2d(8, 8, 1), torch.nn.BatchNorm2d(8)]
        self.body = torch.nn.Sequential(*layers)

    def forward(self, x):
        return self.body(x).mean(dim=(2, 3))


model = Net().eval()
with torch.inference_mode():
    for x, _ in DataLoader(Batches(50), batch_size=None):
        model(x)  # here
