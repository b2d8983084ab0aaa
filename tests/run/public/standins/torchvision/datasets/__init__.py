from torchvision.datasets.cifar import CIFAR10
from torchvision.datasets.folder import ImageFolder
from torchvision.datasets.mnist import MNIST

__all__ = ["CIFAR10", "MNIST", "ImageFolder"]
