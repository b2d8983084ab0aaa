"""Small pictures in colour: crops, flips, a residual network, the best state kept."""

import argparse
import os

import torch
import torch.nn.functional as F
import torchvision
from torch import nn, optim
from torchvision import transforms

parser = argparse.ArgumentParser(description="CIFAR-style training")
parser.add_argument("--lr", default=0.05, type=float)
parser.add_argument("--epochs", default=5, type=int)
parser.add_argument("--workers", default=0, type=int)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
best_acc = 0
torch.manual_seed(1)

transform_train = transforms.Compose(
    [
        transforms.RandomCrop(32, padding=4),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ]
)
transform_test = transforms.Compose(
    [
        transforms.ToTensor(),
        transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ]
)
trainset = torchvision.datasets.CIFAR10(root="./data", train=True, transform=transform_train)
trainloader = torch.utils.data.DataLoader(
    trainset, batch_size=16, shuffle=True, num_workers=args.workers
)
testset = torchvision.datasets.CIFAR10(root="./data", train=False, transform=transform_test)
testloader = torch.utils.data.DataLoader(
    testset, batch_size=20, shuffle=False, num_workers=args.workers
)


class Block(nn.Module):
    def __init__(self, planes):
        super().__init__()
        self.conv1 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + x)


net = nn.Sequential(
    nn.Conv2d(3, 8, 3, stride=2, padding=1), Block(8), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
    nn.Linear(128, 10),
).to(device)  # fmt: skip
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)


def train(epoch):
    net.train()
    train_loss, correct, total = 0, 0, 0
    for inputs, targets in trainloader:
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
    print(f"Epoch {epoch}: loss {train_loss / len(trainloader):.6f}, {correct}/{total}")


def test(epoch):
    global best_acc
    net.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for inputs, targets in testloader:
            inputs, targets = inputs.to(device), targets.to(device)
            _, predicted = net(inputs).max(1)
            total += targets.size(0)
            correct += predicted.eq(targets).sum().item()
    acc = 100.0 * correct / total
    print(f"accuracy {acc:.3f}")
    if acc > best_acc:
        os.makedirs("checkpoint", exist_ok=True)
        torch.save({"net": net.state_dict(), "acc": acc, "epoch": epoch}, "./checkpoint/ckpt.pth")
        best_acc = acc


for epoch in range(args.epochs):
    train(epoch)
    test(epoch)
    scheduler.step()
