"""Pictures that were decoded, for the rules that ask how."""

from dataclasses import dataclass

from slipstream.doctor.attribute import Loading
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import hot_lines


@dataclass(frozen=True)
class Pictures:
    """Of all readers together."""

    count: int
    pixels: float  # of one, on average
    formats: dict[str, int]


def pictures_of(loading: Loading) -> Pictures | None:
    """What Pillow decoded; None where it decoded nothing."""
    formats: dict[str, int] = {}
    pixels = 0
    for process in loading.processes:
        for kind, (count, size) in process.facts.get("pictures", {}).items():
            formats[kind] = formats.get(kind, 0) + count
            pixels += size
    count = sum(formats.values())
    return Pictures(count, pixels / count, formats) if count else None


def wanted_pixels(loading: Loading) -> int | None:
    """Pixels of a picture as the loop gets it: of the largest tensor that can hold pictures."""
    planes = [
        shape[-1] * shape[-2] if shape[1] <= 4 else shape[1] * shape[2]
        for _, _, shape, *_ in loading.loader.tensors
        if len(shape) == 4 and (shape[1] <= 4 or shape[3] <= 4)
    ]
    return max(planes, default=None)


def decode_ms(loading: Loading) -> float:
    """Milliseconds of a batch in decoders of pictures."""
    return sum(ms for stage, ms in loading.stages.items() if stage in _DECODERS)


def decodes_at(case: Case, loading: Loading) -> str | None:
    """The line that decodes, where it was seen; else where samples are read."""
    decoders = [stage for stage in loading.stages if stage.startswith("decode:")]
    dearest = max(decoders, key=lambda stage: loading.stages[stage], default="")
    lines = hot_lines(case, dearest)
    return lines[0][0] if lines else loading.loader.facts.get("read_at") or loading.loader.made_at


_DECODERS = (
    "decode: Pillow", "decode: cv2.imread", "decode: cv2.imdecode", "decode: simplejpeg",
    "decode: torchvision.io.read_image", "decode: torchvision.io.decode_image",
    "decode: torchvision.io.decode_jpeg", "decode: imageio.imread", "decode: skimage.io.imread",
)  # fmt: skip
