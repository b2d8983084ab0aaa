"""JPEGs of any chroma subsampling, put together from gray ones that Pillow encodes.

A scan of one component is coded as a gray picture of the component's size is. So three gray files
give a file of three scans, whatever the sampling factors, which no Pillow option can.
"""

import io
import struct
from dataclasses import dataclass

import numpy as np
from PIL import Image

SAMPLINGS = {
    "4:4:4": (1, 1),
    "4:2:2": (2, 1),
    "4:2:0": (2, 2),
    "4:4:0": (1, 2),
    "4:1:1": (4, 1),
    "4:1:0": (4, 2),
}


@dataclass
class _Parts:
    quant: bytes
    huffman: list[bytes]
    scan: bytes


def compose(
    planes: list[np.ndarray], size: tuple[int, int], luma: tuple[int, int], quality: int
) -> bytes:
    """A baseline JPEG of three scans; `planes` are luma and two chroma planes at their sizes."""
    parts = [_encode_gray(plane, quality) for plane in planes]
    width, height = size
    out = b"\xff\xd8"
    out += b"".join(
        _segment(0xDB, bytes([number]) + p.quant[1:65]) for number, p in enumerate(parts)
    )
    factors = (luma, (1, 1), (1, 1))
    frame = struct.pack(">BHHB", 8, height, width, 3)
    for number, (h, v) in enumerate(factors):
        frame += bytes([number + 1, h << 4 | v, number])
    out += _segment(0xC0, frame)
    for number, p in enumerate(parts):
        out += b"".join(_segment(0xC4, table) for table in p.huffman)
        out += _segment(0xDA, bytes([1, number + 1, 0x00, 0, 63, 0])) + p.scan
    return out + b"\xff\xd9"


def plane_sizes(size: tuple[int, int], luma: tuple[int, int]) -> list[tuple[int, int]]:
    """Sizes of the three planes of a picture of `size`."""
    width, height = size
    chroma = (-(-width // luma[0]), -(-height // luma[1]))
    return [size, chroma, chroma]


def _encode_gray(plane: np.ndarray, quality: int) -> _Parts:
    file = io.BytesIO()
    Image.fromarray(plane).save(file, "JPEG", quality=quality)
    data = file.getvalue()
    quant, huffman = b"", []
    at = 2
    while True:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + length]
        at += 2 + length
        if marker == 0xDB:
            quant = body
        elif marker == 0xC4:
            huffman.append(body)
        elif marker == 0xDA:
            return _Parts(quant, huffman, data[at:-2])


def _segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body
