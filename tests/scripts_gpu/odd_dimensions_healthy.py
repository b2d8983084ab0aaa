# truth: none
"""A vocabulary of 50304: a few rows more than there are words."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, size
from torch.utils.data import DataLoader

WORDS = size(50304, 264)


class Model(torch.nn.Module):
    """The two ends of a language model."""

    def __init__(self, words, width):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(width, width, bias=False),
            torch.nn.ReLU(),
            torch.nn.Linear(width, width, bias=False),
        )
        self.head = torch.nn.Linear(width, words, bias=False)

    def forward(self, x):
        x = self.body(x)
        return self.head(x)


torch.manual_seed(0)
x = torch.randn(size(8192, 32), size(768, 16)).to(DTYPE)
y = torch.randint(0, 200, (size(8192, 32),))
loader = DataLoader(Batches(x.to(DEVICE), y.to(DEVICE)), batch_size=None)
model = Model(WORDS, size(768, 16)).to(DEVICE, DTYPE)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()

for x, y in loader:
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    clock.step()
clock.report()
