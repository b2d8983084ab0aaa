# truth: none
"""They are part of the convolutions."""

import torch
from gpu import DEVICE, DTYPE, Batches, Clock, size
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
x = torch.randn(size(128, 4), 64, size(112, 8), size(112, 8), device=DEVICE).to(DTYPE)
x = x.contiguous(memory_format=torch.channels_last)
y = torch.randint(0, 16, (x.shape[0],), device=DEVICE)
loader = DataLoader(Batches(x, y), batch_size=None)
parts = []
for _ in range(size(10, 2)):
    conv, norm = torch.nn.Conv2d(64, 64, 1), torch.nn.BatchNorm2d(64)
    parts.append(torch.nn.utils.fusion.fuse_conv_bn_eval(conv.eval(), norm.eval()))
model = torch.nn.Sequential(*parts).to(DEVICE, DTYPE).eval()
model = model.to(memory_format=torch.channels_last)
clock = Clock()

with torch.inference_mode():
    for x, _ in loader:
        model(x)
        clock.step()
clock.report()
