"""Functions of well-known libraries that read, decode and change samples, by the stage they are."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from slipstream.doctor.record.opens import counted
from slipstream.doctor.record.stages import StageLog
from slipstream.patches import Patches

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
    ("transformers", "PreTrainedTokenizerBase.__call__", "tokenize: transformers"),
    ("tokenizers", "Tokenizer.encode", "tokenize: tokenizers"),
    ("sentencepiece", "SentencePieceProcessor.encode", "tokenize: sentencepiece"),
    ("nltk", "word_tokenize", "tokenize: nltk"),
)


def time_libraries(log: StageLog, patches: Patches, done: set[str]) -> None:
    """Time those of the functions whose modules are imported by now and not in `done`."""
    if "PIL.Image" in sys.modules:
        # Imported by Pillow when it opens a picture, and so by workers, too late.
        importlib.import_module("PIL.ImageFile")
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
            patches.replace(owner, name, _wrapper(key, log, stage))


def _wrapper(key: str, log: StageLog, stage: str) -> Callable[[Any], Any]:
    if key == "PIL.ImageFile.ImageFile.load":
        return _counted_load(log)
    if key == "builtins.open":
        return lambda original: log.wrap(stage)(counted(original))
    return log.wrap(stage)


def _counted_load(log: StageLog) -> Callable[[Any], Any]:
    """Pillow's decoder, with the pixels that it decodes; it is called again for decoded ones."""

    def wrap(load: Any) -> Any:
        def call(image: Any, *args: Any, **kwargs: Any) -> Any:
            if not getattr(image, "tile", None) or not log.is_on:
                return load(image, *args, **kwargs)
            counts = log.pictures.setdefault(str(image.format), [0, 0])
            counts[0] += 1
            counts[1] += image.size[0] * image.size[1]
            return log.call("decode: Pillow", load, image, *args, **kwargs)

        return call

    return wrap
