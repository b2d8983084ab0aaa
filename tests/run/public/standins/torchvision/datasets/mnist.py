"""Digits, drawn by chance."""

import torch
from PIL import Image
from torch.utils.data import Dataset


class MNIST(Dataset):
    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        self.root, self.train = root, train
        self.transform, self.target_transform = transform, target_transform
        generator = torch.Generator().manual_seed(int(train))
        count = 256 if train else 64
        self.data = torch.randint(0, 256, (count, 28, 28), dtype=torch.uint8, generator=generator)
        self.targets = torch.randint(0, 10, (count,), generator=generator)

    def __getitem__(self, index):
        img, target = self.data[index], int(self.targets[index])
        img = Image.fromarray(img.numpy())
        if self.transform is not None:
            img = self.transform(img)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return img, target

    def __len__(self):
        return len(self.data)
