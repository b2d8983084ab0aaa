"""Functions of well-known libraries that read, decode and change samples, by the stage they are."""

import sys
from typing import Any

from slipstream.doctor.record.patches import Patches
from slipstream.doctor.record.stages import StageLog

# module, path to the attribute in it, stage
_FUNCTIONS = (
    ("PIL.Image", "open", "read: Image.open"),
    ("PIL.ImageFile", "ImageFile.load", "decode: Pillow"),
    ("PIL.Image", "Image.resize", "transform: Image.resize"),
    ("PIL.Image", "Image.thumbnail", "transform: Image.thumbnail"),
    ("PIL.Image", "Image.convert", "transform: Image.convert"),
    ("PIL.Image", "Image.crop", "transform: Image.crop"),
    ("PIL.Image", "Image.transpose", "transform: Image.transpose"),
    ("PIL.Image", "Image.rotate", "transform: Image.rotate"),
    ("PIL.Image", "Image.filter", "transform: Image.filter"),
    ("cv2", "imread", "decode: cv2.imread"),
    ("cv2", "imdecode", "decode: cv2.imdecode"),
    ("cv2", "resize", "transform: cv2.resize"),
    ("cv2", "cvtColor", "transform: cv2.cvtColor"),
    ("cv2", "warpAffine", "transform: cv2.warpAffine"),
    ("torchvision.io", "read_file", "read: torchvision.io.read_file"),
    ("torchvision.io", "read_image", "decode: torchvision.io.read_image"),
    ("torchvision.io", "decode_image", "decode: torchvision.io.decode_image"),
    ("torchvision.io", "decode_jpeg", "decode: torchvision.io.decode_jpeg"),
    ("simplejpeg", "decode_jpeg", "decode: simplejpeg"),
    ("imageio", "imread", "decode: imageio.imread"),
    ("skimage.io", "imread", "decode: skimage.io.imread"),
    ("numpy", "load", "read: numpy.load"),
    ("numpy", "loadtxt", "decode: numpy.loadtxt"),
    ("numpy", "genfromtxt", "decode: numpy.genfromtxt"),
    ("torch", "load", "read: torch.load"),
    ("pathlib", "Path.read_bytes", "read: Path.read_bytes"),
    ("pathlib", "Path.read_text", "read: Path.read_text"),
    ("builtins", "open", "read: open"),
    ("zipfile", "ZipFile.__init__", "read: ZipFile"),
    ("zipfile", "ZipFile.read", "read: ZipFile.read"),
    ("tarfile", "TarFile.__init__", "read: TarFile"),
    ("gzip", "open", "read: gzip.open"),
    ("h5py", "File.__init__", "read: h5py.File"),
    ("h5py", "Dataset.__getitem__", "read: h5py"),
    ("lmdb", "open", "read: lmdb.open"),
    ("sqlite3", "connect", "read: sqlite3.connect"),
    ("pandas", "read_csv", "decode: pandas.read_csv"),
    ("pandas", "read_parquet", "decode: pandas.read_parquet"),
    ("pandas.core.indexing", "_LocationIndexer.__getitem__", "dataset: DataFrame.iloc"),
    ("pickle", "load", "decode: pickle.load"),
    ("pickle", "loads", "decode: pickle.loads"),
    ("json", "load", "decode: json.load"),
    ("json", "loads", "decode: json.loads"),
    ("soundfile", "read", "decode: soundfile.read"),
    ("torchaudio", "load", "decode: torchaudio.load"),
)


def time_libraries(log: StageLog, patches: Patches, done: set[str]) -> None:
    """Time those of the functions whose modules are imported by now and not in `done`."""
    for module_name, path, stage in _FUNCTIONS:
        key = f"{module_name}.{path}"
        module = sys.modules.get(module_name)
        if module is None or key in done:
            continue
        done.add(key)
        owner: Any = module
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        if owner is not None:
            patches.replace(owner, name, log.wrap(stage))


def time_transforms(root: Any, log: StageLog, patches: Patches, done: set[str]) -> list[str]:
    """Time the transforms that a dataset holds, by their classes: lists of them, and those that it
    calls itself. Returns their names in order.
    """
    names: list[str] = []
    for transform in _transforms_of(root):
        kind = type(transform)
        names.append(kind.__name__)
        key = f"{kind.__module__}.{kind.__qualname__}"
        if key in done or kind.__module__ in ("builtins", "functools"):
            continue
        done.add(key)
        # A module's __call__ is that of all modules; what a transform does is its forward.
        method = "__call__" if "__call__" in _own_names(kind) else "forward"
        patches.replace(kind, method, log.wrap(f"transform: {kind.__name__}"))
    return names


def _own_names(kind: type) -> set[str]:
    return {
        name
        for base in kind.__mro__
        if base.__module__ not in ("builtins", "torch.nn.modules.module", "typing")
        for name in vars(base)
    }


_HOLDERS = ("transform", "transforms", "target_transform", "augment", "augmentation", "preprocess")
_INNER = ("dataset", "datasets", "base", "data", "ds")
_DEEPEST = 4


def _transforms_of(thing: Any, depth: int = 0) -> list[Any]:
    """Members of Compose-like objects, and single transforms, in a dataset and those inside it."""
    if depth > _DEEPEST or isinstance(thing, (str, bytes, int, float)):
        return []
    if isinstance(thing, (list, tuple)):
        inner = thing if len(thing) <= 64 else ()
        return [found for part in inner for found in _transforms_of(part, depth + 1)]
    found: list[Any] = []
    members = getattr(thing, "transforms", None)
    if isinstance(members, (list, tuple)) and members:
        for member in members:
            found += _transforms_of(member, depth + 1) or _as_transform(member)
        return found
    values = getattr(thing, "__dict__", {})
    for name, value in values.items():
        if name in _HOLDERS or name.endswith(("transform", "transforms")):
            found += _transforms_of(value, depth + 1) or _as_transform(value)
        elif name in _INNER:
            found += _transforms_of(value, depth + 1)
    return found


def _as_transform(value: Any) -> list[Any]:
    is_object = callable(value) and hasattr(value, "__dict__") and not isinstance(value, type)
    return [value] if is_object and type(value).__name__ != "function" else []
