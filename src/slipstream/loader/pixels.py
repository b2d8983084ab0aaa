"""Pixels of a batch's windows, decoded by this machine's processor."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from slipstream.augment.geometry import Windows
from slipstream.augment.pillow import apply as apply_by_pillow
from slipstream.errors import CorruptDataset
from slipstream.loader.bad_samples import Refusal
from slipstream.loader.readers import Errors, Pictures
from slipstream.store.images import decode_rows, decode_whole, status_text

Pixels = npt.NDArray[np.uint8]


def decode_windows(
    rows: Pictures, windows: Windows, size: tuple[int, int], out: Pixels, errors: Errors,
    threads: int,
) -> None:  # fmt: skip
    """Fill `out`, uint8[N, height, width, 3]; what goes wrong is added to `errors`."""
    status = decode_rows(
        rows, windows.boxes, size, filter=windows.filter, flips=windows.flips,
        resized=windows.resized, out=out, threads=threads,
    )[1]  # fmt: skip
    for k in np.flatnonzero(status).tolist():
        if k not in windows.padded:
            errors.setdefault(k, undecodable(int(status[k])))
    for k in windows.padded:
        if k not in errors and k not in windows.refused:
            _decode_padded(rows, windows, k, out, errors)
    for k, reason in windows.refused.items():
        errors.setdefault(k, Refusal(reason))


def undecodable(status: int) -> str:
    """What is said of a picture with this status."""
    return f"picture cannot be decoded: {status_text(status)}"


def rows_at(rows: Pictures, places: Sequence[int]) -> Pictures:
    """Those of some samples, in their order."""
    parts = {f.name: getattr(rows, f.name) for f in dataclasses.fields(rows) if f.name != "maps"}
    own: Any = {name: None if part is None else part[places] for name, part in parts.items()}
    return dataclasses.replace(rows, **own)


def _decode_padded(rows: Pictures, windows: Windows, k: int, out: Pixels, errors: Errors) -> None:
    try:
        whole = decode_whole(rows_at(rows, [k]), "picture")
    except CorruptDataset as error:
        errors[k] = error.what
        return
    out[k] = np.asarray(apply_by_pillow(windows.row(k), Image.fromarray(whole)))
