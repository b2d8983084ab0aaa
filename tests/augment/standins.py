"""torchvision's transforms for machines without it: same module and class names, same attributes,
same results on Pillow pictures and on tensors. Written from its documented behaviour; the tests
in this folder run on the real ones too where torchvision is installed.
"""

import enum
import math
import numbers
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

V1, V2 = "torchvision.transforms.transforms", "torchvision.transforms.v2"


class InterpolationMode(enum.Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


PILLOW = dict(zip(InterpolationMode, (0, 0, 2, 3, 4, 5, 1), strict=True))


def size_of(picture: Any) -> tuple[int, int]:
    """Height and width."""
    if isinstance(picture, torch.Tensor):
        return picture.shape[-2], picture.shape[-1]
    return picture.height, picture.width


def crop(picture: Any, top: int, left: int, height: int, width: int) -> Any:
    if isinstance(picture, torch.Tensor):
        return picture[..., top : top + height, left : left + width]
    return picture.crop((left, top, left + width, top + height))


def resize(picture: Any, size: tuple[int, int], mode: InterpolationMode) -> Any:
    if size_of(picture) == tuple(size):
        return picture
    if not isinstance(picture, torch.Tensor):
        return picture.resize((size[1], size[0]), PILLOW[mode])
    smooth = mode in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
    values = torch.nn.functional.interpolate(
        picture[None].float(), size=size, mode=mode.value, antialias=smooth
    )[0]
    is_bytes = picture.dtype == torch.uint8
    return values.round().clamp(0, 255).to(torch.uint8) if is_bytes else values


def pad(picture: Any, padding: Any) -> Any:
    """With zeros around it: one number, (left and right, top and bottom), or one for each edge."""
    values = [padding] if isinstance(padding, numbers.Number) else list(padding)
    left, top, right, bottom = {1: values * 4, 2: values * 2, 4: values}[len(values)]
    if isinstance(picture, torch.Tensor):
        return torch.nn.functional.pad(picture, (left, right, top, bottom))
    return ImageOps.expand(picture, (left, top, right, bottom), 0)


def center_crop(picture: Any, size: tuple[int, int]) -> Any:
    height, width = size_of(picture)
    want_height, want_width = size
    more_y, more_x = max(want_height - height, 0), max(want_width - width, 0)
    if more_x or more_y:
        picture = pad(picture, [more_x // 2, more_y // 2, (more_x + 1) // 2, (more_y + 1) // 2])
        height, width = size_of(picture)
        if (height, width) == (want_height, want_width):
            return picture
    top = round((height - want_height) / 2.0)
    left = round((width - want_width) / 2.0)
    return crop(picture, top, left, want_height, want_width)


def flip(picture: Any, axis: int) -> Any:
    """Axis -1 mirrors left-right, -2 top-bottom."""
    if isinstance(picture, torch.Tensor):
        return picture.flip(axis)
    transpose = Image.Transpose
    way = transpose.FLIP_LEFT_RIGHT if axis == -1 else transpose.FLIP_TOP_BOTTOM
    return picture.transpose(way)


def pair(size: Any) -> Any:
    if isinstance(size, int):
        return (size, size)
    return (size[0], size[0]) if len(size) == 1 else size


class Compose:
    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, picture: Any) -> Any:
        for transform in self.transforms:
            picture = transform(picture)
        return picture


class Resize:
    def __init__(
        self,
        size: Any,
        interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        # The two generations keep a single number differently.
        self.size = [size] if isinstance(size, int) and ".v2." in type(self).__module__ else size
        if isinstance(interpolation, int):
            numbers = {number: mode for mode, number in reversed(PILLOW.items())}
            interpolation = numbers[interpolation]
        self.interpolation, self.max_size, self.antialias = interpolation, max_size, antialias

    def __call__(self, picture: Any) -> Any:
        return resize(picture, self.target(*size_of(picture)), self.interpolation)

    def target(self, height: int, width: int) -> tuple[int, int]:
        short, long = min(width, height), max(width, height)
        size = [self.size] if isinstance(self.size, int) else self.size
        if size is None:
            assert self.max_size is not None
            short, long = int(self.max_size * short / long), self.max_size
        elif len(size) == 2:
            return tuple(size)
        else:
            short, long = size[0], int(size[0] * long / short)
            if self.max_size is not None and long > self.max_size:
                short, long = int(self.max_size * short / long), self.max_size
        return (long, short) if width <= height else (short, long)


class CenterCrop:
    def __init__(self, size: Any) -> None:
        self.size = pair(size)

    def __call__(self, picture: Any) -> Any:
        return center_crop(picture, self.size)


class RandomCrop:
    def __init__(
        self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0
    ) -> None:
        self.size, self.padding, self.fill = pair(size), padding, fill
        self.pad_if_needed, self.padding_mode = pad_if_needed, "constant"

    @staticmethod
    def get_params(picture: Any, size: tuple[int, int]) -> tuple[int, int, int, int]:
        height, width = size_of(picture)
        if height < size[0] or width < size[1]:
            raise ValueError(
                f"Required crop size {tuple(size)} is larger than input image size"
                f" {(height, width)}"
            )
        if (height, width) == tuple(size):
            return 0, 0, height, width
        top = int(torch.randint(0, height - size[0] + 1, size=(1,)).item())
        left = int(torch.randint(0, width - size[1] + 1, size=(1,)).item())
        return top, left, size[0], size[1]

    def __call__(self, picture: Any) -> Any:
        if self.padding is not None:
            picture = pad(picture, self.padding)
        return crop(picture, *self.get_params(picture, self.size))


class Pad:
    def __init__(self, padding: Any, fill: Any = 0) -> None:
        self.padding, self.fill, self.padding_mode = padding, fill, "constant"

    def __call__(self, picture: Any) -> Any:
        return pad(picture, self.padding)


class RandomHorizontalFlip:
    axis = -1

    def __init__(self, p: Any = 0.5) -> None:
        self.p = p

    def __call__(self, picture: Any) -> Any:
        return flip(picture, self.axis) if torch.rand(1) < self.p else picture


class RandomVerticalFlip(RandomHorizontalFlip):
    axis = -2


class RandomResizedCrop:
    def __init__(
        self,
        size: Any,
        scale: Any = (0.08, 1.0),
        ratio: Any = (3 / 4, 4 / 3),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        self.size, self.scale, self.ratio = pair(size), scale, ratio
        self.interpolation, self.antialias = interpolation, antialias

    @staticmethod
    def get_params(picture: Any, scale: Any, ratio: Any) -> tuple[int, int, int, int]:
        height, width = size_of(picture)
        log_ratio = torch.log(torch.tensor(ratio))
        for _ in range(10):
            area = height * width * torch.empty(1).uniform_(scale[0], scale[1]).item()
            aspect = torch.exp(torch.empty(1).uniform_(log_ratio[0], log_ratio[1])).item()
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                top = int(torch.randint(0, height - h + 1, size=(1,)).item())
                left = int(torch.randint(0, width - w + 1, size=(1,)).item())
                return top, left, h, w
        w, h = width, height
        if width / height < min(ratio):
            h = round(w / min(ratio))
        elif width / height > max(ratio):
            w = round(h * max(ratio))
        return (height - h) // 2, (width - w) // 2, h, w

    def __call__(self, picture: Any) -> Any:
        box = self.get_params(picture, self.scale, self.ratio)
        return resize(crop(picture, *box), self.size, self.interpolation)


class ToTensor:
    def __call__(self, picture: Any) -> torch.Tensor:
        if isinstance(picture, torch.Tensor):
            raise TypeError("pic should be PIL Image or ndarray")
        pixels = torch.from_numpy(np.array(picture))
        tensor = pixels.view(*pixels.shape[:2], -1).permute(2, 0, 1).contiguous()
        return tensor.to(torch.get_default_dtype()).div(255)


class PILToTensor:
    def __call__(self, picture: Any) -> torch.Tensor:
        if isinstance(picture, torch.Tensor):
            if ".v2." in type(self).__module__:
                return picture
            raise TypeError("pic should be PIL Image")
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


class ToImage(PILToTensor):
    pass


class Unchanged:
    def __call__(self, picture: Any) -> Any:
        return picture


class ConvertImageDtype:
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype

    def __call__(self, picture: torch.Tensor) -> torch.Tensor:
        if not isinstance(picture, torch.Tensor):
            raise TypeError("Input img should be Tensor Image")
        if picture.dtype == self.dtype:
            return picture
        assert picture.dtype == torch.uint8, "this stand-in converts bytes only"
        if ".v2." in type(self).__module__:
            return picture.to(self.dtype).mul_(1.0 / 255)
        return picture.to(self.dtype) / 255


class ToDtype:
    def __init__(self, dtype: Any, scale: bool = False) -> None:
        self.dtype, self.scale = dtype, scale

    def __call__(self, picture: Any) -> Any:
        if not isinstance(picture, torch.Tensor) or picture.dtype == self.dtype:
            return picture
        if self.scale and picture.dtype == torch.uint8:
            return picture.to(self.dtype).mul_(1.0 / 255)
        return picture.to(self.dtype)


class Normalize:
    def __init__(self, mean: Any, std: Any, inplace: bool = False) -> None:
        self.mean, self.std, self.inplace = mean, std, inplace

    def __call__(self, picture: Any) -> torch.Tensor:
        if not isinstance(picture, torch.Tensor) or not picture.is_floating_point():
            raise TypeError("Input tensor should be a float tensor")
        mean = torch.as_tensor(self.mean, dtype=picture.dtype).view(-1, 1, 1)
        std = torch.as_tensor(self.std, dtype=picture.dtype).view(-1, 1, 1)
        return picture.clone().sub_(mean).div_(std)


class ImageClassification:
    def __init__(
        self,
        *,
        crop_size: int,
        resize_size: int = 256,
        mean: Any = (0.485, 0.456, 0.406),
        std: Any = (0.229, 0.224, 0.225),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        self.crop_size, self.resize_size = [crop_size], [resize_size]
        self.mean, self.std = list(mean), list(std)
        self.interpolation, self.antialias = interpolation, antialias

    def __call__(self, picture: Any) -> torch.Tensor:
        parts = (Resize(self.resize_size, self.interpolation), CenterCrop(self.crop_size[0]))
        parts += (PILToTensor(), lambda t: t / 255, Normalize(self.mean, self.std))  # type: ignore[assignment]
        return Compose(parts)(picture)


class ColorJitter(Unchanged):
    """A transform that the engine does not know."""


def _copy(original: type, module: str, name: str = "") -> type:
    """The same class under torchvision's module and name."""
    name = name or original.__name__
    return type(name, (original,), {"__module__": module, "__qualname__": name})


_SHARED = (Resize, CenterCrop, RandomCrop, RandomHorizontalFlip, RandomVerticalFlip,
           RandomResizedCrop)  # fmt: skip
v1 = SimpleNamespace(
    **{
        kind.__name__: _copy(kind, V1)
        for kind in (*_SHARED, Compose, Pad, ToTensor, PILToTensor, ConvertImageDtype, Normalize,
                     ColorJitter)
    }
)  # fmt: skip
v2 = SimpleNamespace(
    **{kind.__name__: _copy(kind, f"{V2}._geometry") for kind in _SHARED},
    **{
        kind.__name__: _copy(kind, f"{V2}._misc")
        for kind in (ConvertImageDtype, ToDtype, Normalize)
    },
    Compose=_copy(Compose, f"{V2}._container"),
    ToImage=_copy(ToImage, f"{V2}._type_conversion"),
    PILToTensor=_copy(PILToTensor, f"{V2}._type_conversion"),
    ToPureTensor=_copy(Unchanged, f"{V2}._type_conversion", "ToPureTensor"),
    RGB=_copy(Unchanged, f"{V2}._color", "RGB"),
    ColorJitter=_copy(ColorJitter, f"{V2}._color"),
)
preset = _copy(ImageClassification, "torchvision.transforms._presets")
