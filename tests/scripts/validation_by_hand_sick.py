# truth: rule=frequent-evaluation cost_ms=measured at="model(*batch())"
"""Batches are drawn by hand, and the loss of others is estimated after every sixth step."""

import time

import torch

STEPS = 120
tokens = torch.randint(0, 96, (20_000,))


def batch():
    starts = torch.randint(len(tokens) - 33, (12,))
    x = torch.stack([tokens[i : i + 32] for i in starts])
    y = torch.stack([tokens[i + 1 : i + 33] for i in starts])
    return x, y


class Language(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Sequential(
            torch.nn.Embedding(96, 128), *(torch.nn.Linear(128, 128) for _ in range(12))
        )
        self.head = torch.nn.Linear(128, 96)

    def forward(self, x, y):
        logits = self.head(self.inside(x))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate_loss(model, count):
    model.eval()
    losses = torch.zeros(count)
    for k in range(count):
        losses[k] = model(*batch())
    model.train()
    return losses.mean()


torch.manual_seed(0)
model = Language()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
began = time.perf_counter()
for step in range(STEPS):
    if step % 6 == 0:
        estimate_loss(model, 20)
    loss = model(*batch())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"STEP_MS={(time.perf_counter() - began) / STEPS * 1000:.3f}")
