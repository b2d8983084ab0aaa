# truth: none
"""They are page-locked once, and copied beside the work."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, mlp, pinned, rows, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
ROWS = size(8192, 16)
x, y = rows(size(16384, 64), size(8192, 16))
loader = DataLoader(Batches(pinned(x), pinned(y)), batch_size=None)
model = mlp(size(8192, 16), size(4096, 32), size(1, 2)).to(DEVICE, DTYPE)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
clock = Clock()


def ahead(batches):
    """The next batch is copied on a stream of its own while the device works on this one."""
    stream = torch.cuda.Stream() if DEVICE == "cuda" else None
    waiting = None
    for x, y in batches:
        with torch.cuda.stream(stream):
            copied = [each[:ROWS].to(DEVICE, non_blocking=True) for each in (x, y)]
        if waiting is not None:
            yield waiting
        if stream is not None:
            torch.cuda.current_stream().wait_stream(stream)
            for tensor in copied:
                tensor.record_stream(torch.cuda.current_stream())
        waiting = copied
    yield waiting


for x, y in ahead(loader):
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    clock.step()
clock.report()
