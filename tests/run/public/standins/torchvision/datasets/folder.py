"""Pictures in one folder for each class."""

import os

from PIL import Image
from torch.utils.data import Dataset


def pil_loader(path):
    with open(path, "rb") as file:
        picture = Image.open(file)
        return picture.convert("RGB")


class ImageFolder(Dataset):
    def __init__(self, root, transform=None, target_transform=None, loader=pil_loader):
        self.root, self.loader = root, loader
        self.transform, self.target_transform = transform, target_transform
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.samples = [
            (os.path.join(root, name, file), number)
            for name, number in self.class_to_idx.items()
            for file in sorted(os.listdir(os.path.join(root, name)))
        ]
        self.imgs = self.samples
        self.targets = [label for _, label in self.samples]

    def __getitem__(self, index):
        path, target = self.samples[index]
        sample = self.loader(path)
        if self.transform is not None:
            sample = self.transform(sample)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return sample, target

    def __len__(self):
        return len(self.samples)
