"""
Slipstream's native core: JPEG tiles, exact resize, checksums. Called by the package, not by users.
"""

from collections.abc import Sequence
import types
from typing import Annotated, Any

import numpy
from numpy.typing import NDArray


STATUS_OK: int = 0

STATUS_UNSUPPORTED: int = 1

STATUS_CORRUPT: int = 2

STATUS_CHECKSUM: int = 3

STATUS_BOX: int = 4

STATUS_MEMORY: int = 5

class Rewritten:
    """What became of one JPEG file."""

    @property
    def status(self) -> int: ...

    @property
    def message(self) -> str: ...

    @property
    def record(self) -> bytes: ...

    @property
    def width(self) -> int: ...

    @property
    def height(self) -> int: ...

    @property
    def orientation(self) -> int: ...

    @property
    def oriented(self) -> bool: ...

    @property
    def trailing_bytes(self) -> int: ...

class Order:
    """A shuffled order of `count` samples."""

    def __init__(self, count: int, seed: int, epoch: int) -> None: ...

    def at(self, positions: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
        """Which samples stand at these places of the order."""

def philox(seed: int, epoch: int, samples: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], op: int, blocks: int) -> Annotated[NDArray[numpy.uint32], dict(shape=(None, None))]:
    """
    Random numbers of an operation, a function of all arguments: 4 * blocks per sample.
    """

def crc32c(data: object, seed: int = 0) -> int:
    """CRC-32C of a buffer; `seed` continues an earlier one."""

def crc32c_many(data: object, offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], threads: int) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]:
    """CRC-32C of many ranges of one buffer."""

def rewrite_jpegs(files: Sequence[object], orient: bool, threads: int) -> list[Rewritten]:
    """Rewrite JPEG files losslessly into tile records."""

def export_jpeg(record: object) -> bytes:
    """Turn a tile record into an ordinary JPEG file."""

def record_size(record: object) -> tuple[int, int]:
    """Check a tile record's structure and return (width, height)."""

def coefficients(picture: object) -> list[object]:
    """
    Quantized DCT coefficients and quantization tables of a JPEG file or a tile record.
    """

def decode_batch(maps: Sequence[object], map_ids: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], codings: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], checksums: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, boxes: Annotated[NDArray[numpy.int32], dict(shape=(None, 4), order='C', device='cpu', writable=False)], flips: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], resized: Annotated[NDArray[numpy.int32], dict(shape=(None, 4), order='C', device='cpu', writable=False)] | None, out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None, 3), order='C', device='cpu')], filter: int, pass_order: int, threads: int) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
    """
    Decode, crop, resize and flip pictures into `out`; one status per picture.
    """

def choose_areas(words: Annotated[NDArray[numpy.uint32], dict(shape=(None, None), order='C', device='cpu', writable=False)], aspects: Annotated[NDArray[numpy.float64], dict(shape=(None, 10), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.int64], dict(shape=(2, None), order='C', device='cpu', writable=False)], scale: Sequence[float], ratio: Sequence[float], boxes: Annotated[NDArray[numpy.int64], dict(shape=(4, None), order='C', device='cpu')]) -> bool:
    """
    The crops of RandomResizedCrop, (x, y, width, height) each; whether all have a pixel.
    """

def gather(maps: Sequence[object], map_ids: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], checksums: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')], threads: int) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
    """
    Copy payloads of equal length into the rows of `out`; one status per payload.
    """

def convert(src: NDArray[numpy.uint8], out: NDArray[numpy.uint8] | NDArray[numpy.float32], table: NDArray[numpy.float32] | None, threads: int) -> None:
    """
    Pixels [N, H, W, 3] into planes [N, 3, H, W], or into their entries in table[3, 256].
    """

def read_files(paths: list[bytes], threads: int) -> tuple[list[Annotated[NDArray[numpy.uint8], dict(shape=(None,))]], Annotated[NDArray[numpy.int32], dict(shape=(None, None))], Annotated[NDArray[numpy.int32], dict(shape=(None,))]]:
    """
    Read whole files: their bytes, (width, height) where they are JPEGs, and errnos.
    """

def status_text(code: int) -> str:
    """What a status means, in words."""

def resize(src: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, 3), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, 3), order='C', device='cpu')], filter: int, pass_order: int) -> None:
    """Resize RGB pixels as Pillow does."""

class ShardColumns:
    """
    Index columns of shards, gathered for samples wherever they lie. Shard `s` has samples `firsts[s]` to `firsts[s + 1]`.
    """

    def __init__(self, firsts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], item_bytes: Sequence[int]) -> None: ...

    def open(self, shard: int, owner: object, columns: Sequence[object]) -> None:
        """
        Give a shard's columns, which stay where they are. A second time changes nothing.
        """

    def gather(self, samples: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], ids: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu')], out: Sequence[object]) -> tuple[list[int], list[Any]]:
        """
        Shards that must be opened first; if there are none, fills the columns `out` and the samples' places `ids` in the list of shards' owners, which comes second.
        """

def frames_of(thread: int) -> list[tuple[types.FrameType, int]]:
    """
    What a thread is at, frames and their lines, the innermost first; empty where it is over.
    """

SEGMENT_THREADS: int = 64

PIXEL_THREADS: int = 256

class Slices:
    """
    Compressed tiles of a batch's crops for the GPU: planned when made, then written.
    """

    def __init__(self, maps: Sequence[object], map_ids: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], codings: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], checksums: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, boxes: Annotated[NDArray[numpy.int32], dict(shape=(None, 4), order='C', device='cpu', writable=False)], flips: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], resized: Annotated[NDArray[numpy.int32], dict(shape=(None, 4), order='C', device='cpu', writable=False)] | None, size: tuple[int, int], filter: int, pass_order: int, first: int, most_bytes: int, threads: int) -> None: ...

    @property
    def end(self) -> int:
        """One past the last sample that was planned."""

    @property
    def pictures(self) -> int:
        """How many of them are in the slot."""

    @property
    def statuses(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
        """
        One per sample planned; what is not 0 is of no use. Checksums are known after writing.
        """

    @property
    def sizes(self) -> list[int]:
        """
        Bytes of slot, planes and first pass; groups of two kernels; codes of a picture at most.
        """

    def write(self, slot: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], threads: int) -> None:
        """Fill the slot."""

    def emulate(self, slot: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], values: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], verdicts: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """
        Run the kernels' own source on the processor, over a slot that was written.
        """

def statuses_of_verdicts(verdicts: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
    """What the kernels found, as statuses."""

class Adam:
    """A step of Adam for float32 memory at these addresses."""

    def __init__(self, counts: Sequence[int], values: Sequence[int], gradients: Sequence[int], firsts: Sequence[int], seconds: Sequence[int], roots: Sequence[int], steps: Sequence[int]) -> None: ...

    def lies_apart(self) -> bool:
        """Whether nothing is there twice."""

    def moments(self, fused: bool, rate: float, beta1: float, beta2: float, epsilon: float, weight_decay: float, decoupled: bool) -> bool:
        """
        Decay, both means, and the squares' mean into the roots, whose roots come next. False, and nothing done, where a step counts backwards.
        """

    def values(self) -> None:
        """With the roots: the parameters, and their steps."""

class Sgd:
    """A step of SGD for float32 memory at these addresses."""

    def __init__(self, counts: Sequence[int], values: Sequence[int], gradients: Sequence[int], firsts: Sequence[int]) -> None: ...

    def lies_apart(self) -> bool:
        """Whether nothing is there twice."""

    def step(self, fused: bool, rate: float, momentum: float, dampening: float, weight_decay: float, nesterov: bool) -> None:
        """All of it."""
