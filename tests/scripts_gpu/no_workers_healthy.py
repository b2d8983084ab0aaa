# truth: none
"""As many workers as the device wants, and losses that are read in the end."""

import torch
from gpu import DEVICE, DTYPE, STEPS, Clock, mlp, size, work
from torch.utils.data import DataLoader, Dataset

ROWS = size(512, 2)


class Made(Dataset):
    """A sample takes 0.7 ms of a core."""

    def __len__(self):
        return 32 * STEPS

    def __getitem__(self, index):
        work(0.7)
        rows = torch.full((ROWS, 64), index % 7 / 7, dtype=DTYPE)
        return rows, torch.full((ROWS,), index % 16)


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Made(), batch_size=32, shuffle=True, num_workers=10, pin_memory=True)
    model = mlp(64, size(1536, 32), size(16, 2)).to(DEVICE, DTYPE)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    clock = Clock()

    total = 0.0
    for inputs, labels in loader:
        x, y = inputs.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)
        optimizer.zero_grad()
        loss = criterion(model(x.flatten(0, 1)), y.flatten())
        loss.backward()
        optimizer.step()
        total += loss.detach()
        clock.step()
    clock.report()
