"""A runtime is tried in a process of its own first: what it does there harms nobody."""

import json
import os
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.infer.elsewhere.exported import Case, Exported
from slipstream.infer.elsewhere.lists import load_lists, save_lists
from slipstream.infer.elsewhere.process import RuntimeFailed, run_child
from slipstream.infer.elsewhere.runtimes import Array, Runtime
from slipstream.infer.elsewhere.signature import Signature

_LIMIT_S = 60.0
_LIMIT_TO_QUANTIZE_S = 120.0
_CHILD = "slipstream.infer.elsewhere.child"


@dataclass(frozen=True)
class Quantize:
    """`of` is the file to quantize, with what is seen in these calls."""

    of: Path
    calibration: Sequence[Sequence[Array]]


def tried(
    exported: Exported, file: Path, runtime: Runtime, tolerance: float,
    quantize: Quantize | None = None,
) -> Signature:  # fmt: skip
    """Which calls the runtime answers; it is shown to do so for the example, or `RuntimeFailed` is
    raised. Other batch sizes are answered if those that were tried give what the model gives, but
    for a share of `tolerance`. With `quantize`, `file` is made first.
    """
    cases = exported.cases
    outputs = in_child(
        file, runtime, [case.arrays for case in cases], quantize,
        limit_s=_LIMIT_S if quantize is None else _LIMIT_TO_QUANTIZE_S,
    )  # fmt: skip
    example, *others = cases
    why = _why_wrong(example, outputs.get(0, []))
    if why is not None:
        raise RuntimeFailed(f"{runtime.title} {why}")
    right = {
        case.batch
        for number, case in enumerate(others, start=1)
        if _why_wrong(case, outputs.get(number, [])) is None
        and _is_near(case, outputs[number], tolerance)
    }
    smallest = 1 if 1 in right else example.batch
    largest = exported.largest if any(size > example.batch for size in right) else example.batch
    return exported.signature.with_batches(smallest, largest)


def in_child(
    file: Path, runtime: Runtime, cases: Sequence[Sequence[Array]],
    quantize: Quantize | None = None, *, limit_s: float = _LIMIT_S, module: str = _CHILD,
) -> dict[int, list[Array]]:  # fmt: skip
    """What a runtime gives for these calls, by number; other calls than the first may be missing.
    The process is gone when this returns or raises.
    """
    values: dict[str, Any] = {"parent": os.getpid(), "file": str(file), "runtime": asdict(runtime)}
    values["quantize"] = {"of": str(quantize.of)} if quantize is not None else None
    with tempfile.TemporaryDirectory(
        prefix="slipstream-child-", ignore_cleanup_errors=True
    ) as folder:
        place = Path(folder)
        (place / "spec.json").write_text(json.dumps(values))
        save_lists(place / "inputs.npz", dict(enumerate(cases)))
        if quantize is not None:
            save_lists(place / "calibration.npz", dict(enumerate(quantize.calibration)))
        run_child(place, module, runtime.title, limit_s)
        try:
            return load_lists(place / "outputs.npz")
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            raise RuntimeFailed(f"{runtime.title} left no results that can be read") from None


def _why_wrong(case: Case, given: Sequence[Array]) -> str | None:
    """What cannot be right at first sight; how near numbers are is the gates' matter."""
    if len(given) != len(case.gives):
        return f"gives {len(given)} results, the model gives {len(case.gives)}"
    for one, other in zip(given, case.gives, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"gives {one.shape} {one.dtype}, the model gives {other.shape} {other.dtype}"
        if one.dtype.kind in "fc":
            bad = int((~np.isfinite(one) & np.isfinite(other)).sum())
            if bad:
                return f"gives {bad} of {one.size} values that are no finite numbers"
    return None


def _is_near(case: Case, given: Sequence[Array], tolerance: float) -> bool:
    for one, other in zip(given, case.gives, strict=True):
        right = other.astype(np.float64)
        finite = np.isfinite(right)
        apart = np.square(one.astype(np.float64) - right)[finite].sum()
        if not apart <= tolerance**2 * np.square(right)[finite].sum():
            return False
    return True
