# truth: none
"""A teacher that is asked without gradients."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Whole batches that are there already: loading takes no time."""

    def __init__(self, count):
        self.x = torch.randn(128, 256)
        self.y = torch.randint(0, 10, (128,))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.x, self.y


def net(width, depth):
    """Layers of one width."""
    layers = [torch.nn.Linear(256, width), torch.nn.ReLU()]
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))


torch.manual_seed(0)
loader = DataLoader(Batches(60), batch_size=None)
student, teacher = net(256, 4), net(768, 6)
teacher.eval()
optimizer = torch.optim.SGD(student.parameters(), lr=0.01, foreach=True)

began = time.perf_counter()
for x, y in loader:
    optimizer.zero_grad()
    with torch.no_grad():
        taught = teacher(x)
    asked = student(x)
    loss = torch.nn.functional.cross_entropy(asked, y)
    loss = loss + torch.nn.functional.kl_div(
        asked.log_softmax(1), taught.softmax(1), reduction="batchmean"
    )
    loss.backward()
    optimizer.step()

print(f"STEP_MS={(time.perf_counter() - began) / 60 * 1000:.3f}")
