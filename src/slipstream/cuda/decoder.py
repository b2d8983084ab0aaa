"""Pixels of a batch from its compressed tiles, on a CUDA device."""

import ctypes
from typing import Any

import torch

from slipstream import _native
from slipstream.cuda.compile import load_kernels

_THREADS = _native.PIXEL_THREADS
_MOST_AT_ONCE = 65535  # that a grid has room for


class Decoder:
    """Runs the kernels on one device. Any thread, on its current stream.

    Memory comes from torch's allocator and goes back to it at once: the order of the stream keeps
    it safe. So host memory that is given here must stay until the stream has passed.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._kernels = load_kernels(device)
        self._streams: dict[int, Any] = {}

    def decode(
        self, slices: _native.Slices, slot: torch.Tensor, values: torch.Tensor, out: torch.Tensor,
        verdicts: torch.Tensor,
    ) -> None:  # fmt: skip
        """Start to make the pictures of a slot that was written.

        `slot` is page-locked, `values` [3, 256] what each byte becomes, of the type of `out`, which
        is [N, 3, height, width] in any strides. `verdicts` is int32[N]; -1 in it stays where the
        picture is fine.
        """
        _, planes, middle, segment_groups, pixel_groups, table_bytes = slices.sizes
        on_device = slot.to(self.device, non_blocking=True)
        samples = torch.empty(planes, dtype=torch.uint8, device=self.device)
        narrowed = torch.empty(middle, dtype=torch.uint8, device=self.device)
        data, samples_at, narrowed_at = (t.data_ptr() for t in (on_device, samples, narrowed))
        self._launch(
            "decode_segments", segment_groups, _native.SEGMENT_THREADS, data, samples_at,
            verdicts.data_ptr(), shared_bytes=table_bytes,
        )  # fmt: skip
        self._launch("resize_first", pixel_groups, _THREADS, data, samples_at, narrowed_at)
        grid = (-(-out.shape[2] * out.shape[3] // _THREADS), slices.pictures)
        self._launch("resize_second", grid, _THREADS, data, narrowed_at, *_output(out, values))

    def place(
        self, pixels: torch.Tensor, places: torch.Tensor, values: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Start to put pictures that are decoded, page-locked uint8[M, height, width, 3], into
        their places of `out`. `places` is page-locked int32[M].
        """
        on_device = pixels.to(self.device, non_blocking=True)
        where = places.to(self.device, non_blocking=True)
        _, height, width, _ = pixels.shape
        for first in range(0, len(pixels), _MOST_AT_ONCE):
            own, to = (part[first : first + _MOST_AT_ONCE] for part in (on_device, where))
            self._launch(
                "place_pixels", (-(-height * width // _THREADS), len(own)), _THREADS,
                own.data_ptr(), to.data_ptr(), ctypes.c_uint32(width), ctypes.c_uint32(height),
                *_output(out, values),
            )  # fmt: skip

    def _launch(self, name: str, grid: Any, block: int, *args: Any, shared_bytes: int = 0) -> None:
        from cuda.core import LaunchConfig, launch

        config = LaunchConfig(grid=grid, block=block, shmem_size=shared_bytes)
        launch(self._stream(), config, self._kernels[name], *args)

    def _stream(self) -> Any:
        from cuda.core import Stream

        handle = torch.cuda.current_stream(self.device).cuda_stream
        if handle not in self._streams:
            self._streams[handle] = Stream.from_handle(handle)
        return self._streams[handle]


def _output(out: torch.Tensor, values: torch.Tensor) -> tuple[Any, ...]:
    picture, channel, row, column = out.stride()
    return (
        out.data_ptr(), values.data_ptr(), ctypes.c_uint64(picture), ctypes.c_uint32(channel),
        ctypes.c_uint32(row), ctypes.c_uint32(column), ctypes.c_uint32(out.element_size()),
    )  # fmt: skip
