from torchvision.transforms.transforms import *  # noqa: F403
