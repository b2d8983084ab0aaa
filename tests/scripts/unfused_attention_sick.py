# truth: rule=unfused-attention cost_ms=measured at="weights @ v"
"""Attention in three steps of Python, with all weights written to memory."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        self.x = torch.randn(1, 1024, 64)
        self.y = torch.randint(0, 10, (1,))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


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
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        weights = torch.softmax(scores, dim=-1)
        mixed = weights @ v
        return x + self.outputs(mixed.transpose(1, 2).reshape(count, length, width))


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.linear(x.mean(1))


torch.manual_seed(0)
loader = DataLoader(Batches(50), batch_size=None)
model = torch.nn.Sequential(Attention(64, 4), Head()).eval()

began = time.perf_counter()
with torch.inference_mode():
    for x, _ in loader:
        model(x)

print(f"STEP_MS={(time.perf_counter() - began) / 50 * 1000:.3f}")
