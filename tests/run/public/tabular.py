"""An MLP on a table in memory, in small batches."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=2048)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()

np.random.seed(0)
torch.manual_seed(0)
table = np.random.randn(args.rows, 20).astype(np.float32)
target = (table[:, :4].sum(1) + 0.1 * np.random.randn(args.rows)).astype(np.float32)
split = int(0.8 * args.rows)
mean, std = table[:split].mean(0), table[:split].std(0)
X = torch.from_numpy((table - mean) / std)
y = torch.from_numpy(target).unsqueeze(1)
train_ds, test_ds = TensorDataset(X[:split], y[:split]), TensorDataset(X[split:], y[split:])
train_dl = DataLoader(train_ds, batch_size=args.batch_size, shuffle=True)
test_dl = DataLoader(test_ds, batch_size=4 * args.batch_size)

model = nn.Sequential(
    nn.Linear(20, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Dropout(0.1), nn.Linear(64, 1)
)
loss_fn = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
history = []
for epoch in range(args.epochs):
    model.train()
    running_loss = 0.0
    for xb, yb in train_dl:
        optimizer.zero_grad()
        loss = loss_fn(model(xb), yb)
        loss.backward()
        optimizer.step()
        running_loss += loss.item() * xb.size(0)
    model.eval()
    with torch.no_grad():
        test_loss = sum(loss_fn(model(xb), yb).item() * len(xb) for xb, yb in test_dl)
    history.append((running_loss / len(train_ds), test_loss / len(test_ds)))
    print(f"epoch {epoch}: train {history[-1][0]:.9f}, test {history[-1][1]:.9f}")
np.save("history.npy", np.array(history))
torch.save(model, "model.pt")  # the whole of it
