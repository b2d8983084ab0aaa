"""Small pictures in colour, drawn by chance."""

import numpy as np
from PIL import Image
from torch.utils.data import Dataset


class CIFAR10(Dataset):
    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        self.root, self.train = root, train
        self.transform, self.target_transform = transform, target_transform
        rng = np.random.default_rng(int(train))
        count = 256 if train else 64
        self.data = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        self.targets = rng.integers(0, 10, count).tolist()

    def __getitem__(self, index):
        img, target = self.data[index], self.targets[index]
        img = Image.fromarray(img)
        if self.transform is not None:
            img = self.transform(img)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return img, target

    def __len__(self):
        return len(self.data)
