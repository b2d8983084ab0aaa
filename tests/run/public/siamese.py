"""Pairs of pictures, alike or not: a dataset that draws its pairs at random."""

import argparse
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __init__(self, count):
        rng = np.random.RandomState(0)
        self.data = torch.from_numpy(rng.rand(count, 1, 14, 14).astype(np.float32))
        self.targets = torch.from_numpy(rng.randint(0, 5, count))
        self.group_examples()

    def group_examples(self):
        targets = np.array(self.targets)
        self.grouped_examples = {i: np.where(targets == i)[0] for i in range(5)}

    def __len__(self):
        return self.data.shape[0]

    def __getitem__(self, index):
        selected_class = random.randint(0, 4)
        group = self.grouped_examples[selected_class]
        first = self.data[group[random.randint(0, len(group) - 1)]].clone()
        if index % 2 == 0:
            second = self.data[group[random.randint(0, len(group) - 1)]].clone()
            return first, second, torch.tensor(1, dtype=torch.float)
        other = (selected_class + random.randint(1, 4)) % 5
        group = self.grouped_examples[other]
        second = self.data[group[random.randint(0, len(group) - 1)]].clone()
        return first, second, torch.tensor(0, dtype=torch.float)


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten())
        self.fc = nn.Sequential(
            nn.Linear(576, 32), nn.ReLU(inplace=True), nn.Linear(32, 1), nn.Sigmoid()
        )

    def forward(self, input1, input2):
        return self.fc(torch.cat((self.features(input1), self.features(input2)), 1))


def train(model, device, train_loader, optimizer, epoch):
    model.train()
    criterion = nn.BCELoss()
    for batch_idx, (images_1, images_2, targets) in enumerate(train_loader):
        images_1, images_2, targets = (t.to(device) for t in (images_1, images_2, targets))
        optimizer.zero_grad()
        outputs = model(images_1, images_2).squeeze()
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        if batch_idx % 5 == 0:
            print(f"Train Epoch: {epoch} [{batch_idx}]\tLoss: {loss.item():.9f}")


def test(model, device, test_loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for images_1, images_2, targets in test_loader:
            outputs = model(images_1.to(device), images_2.to(device)).squeeze()
            test_loss += F.binary_cross_entropy(outputs, targets, reduction="sum").item()
            correct += torch.where(outputs > 0.5, 1, 0).eq(targets.view_as(outputs)).sum().item()
    print(f"\nTest set: Average loss: {test_loss / len(test_loader.dataset):.9f}, {correct}\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kwargs = {"num_workers": args.workers, "shuffle": True}
    train_loader = DataLoader(Pairs(480), batch_size=16, **kwargs)
    test_loader = DataLoader(Pairs(96), batch_size=32, **kwargs)
    model = SiameseNetwork().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()


if __name__ == "__main__":
    main()
