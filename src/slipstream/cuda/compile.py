"""Compiles the kernels for the GPU at hand and keeps the result on disk."""

import functools
import hashlib
import os
import platform
import tempfile
import threading
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import torch

from slipstream.errors import MissingExtra, UsageError

_NAMES = (
    "decode_segments",
    "resize_first",
    "resize_second",
    "place_pixels",
)
_OLDEST = (7, 5)  # that CUDA 13 compiles for
_USE_CPU = 'Or decode on the CPU: Loader(..., decode="cpu").'
_lock = threading.Lock()


def why_not(device: torch.device) -> str:
    """Why kernels cannot run there, and what to do about it; empty if they can."""
    if device.type != "cuda":
        return f"the GPU engine needs a CUDA device, not {device}"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device here"
    capability = torch.cuda.get_device_capability(device)
    if capability < _OLDEST:
        name = torch.cuda.get_device_name(device)
        return f"{name} has compute capability {capability[0]}.{capability[1]}, 7.5 is needed"
    try:
        import cuda.core  # noqa: F401
    except ImportError:
        extra = "cuda12" if (torch.version.cuda or "").startswith("12.") else "cuda"
        return f"cuda-core is not installed: pip install '.[{extra}]' in Slipstream's folder"
    return ""


def load_kernels(device: torch.device) -> dict[str, Any]:
    """The kernels, ready to launch on the device. Raises `UsageError`, `MissingExtra`."""
    reason = why_not(device)
    if reason:
        kind = MissingExtra if "pip install" in reason else UsageError
        raise kind(f"Cannot decode on {device}: {reason}. {_USE_CPU}")
    with _lock, torch.cuda.device(device):  # the caller's own is current again behind it
        return _load(device.index)


@functools.cache
def _load(index: int) -> dict[str, Any]:
    from cuda.core import Device

    Device(index).set_current()
    major, minor = torch.cuda.get_device_capability(index)
    arch = f"sm_{major}{minor}"
    sources = _sources()
    key = _key(arch, sources)
    folder = cache_folder()
    path = None if folder is None else folder / f"decode-{arch}-{key}.cubin"
    if path is not None and (kernels := _load_kept(path)) is not None:
        return kernels
    code = _compile(arch, sources)
    if path is not None:
        _keep(path, code)
    return _kernels_of(code)


def _kernels_of(code: bytes) -> dict[str, Any]:
    from cuda.core import ObjectCode

    module = ObjectCode.from_cubin(code)
    return {name: module.get_kernel(name) for name in _NAMES}


def _load_kept(path: Path) -> dict[str, Any] | None:
    """None if there is nothing, or nothing that works."""
    try:
        code = path.read_bytes()
        return _kernels_of(code) if code else None
    except Exception:  # there is no file, or whatever the driver says of one that was damaged
        return None


def cache_folder() -> Path | None:
    """Where compiled kernels are kept; None where this user has no place for that."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "slipstream"
    except RuntimeError:  # no home
        return None


def _sources() -> dict[str, str]:
    folder = resources.files(__package__) / "kernels"
    return {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith((".cu", ".cuh"))
    }


def _options(arch: str) -> dict[str, Any]:
    options: dict[str, Any] = {"arch": arch, "std": "c++17"}
    if platform.machine() in ("aarch64", "arm64"):
        # The CPU engine overflows as libjpeg-turbo does on this architecture.
        options["define_macro"] = "SLIP_HOST_AARCH64"
    return options


def _key(arch: str, sources: dict[str, str]) -> str:
    parts = [metadata.version("cuda-core"), str(sorted(_options(arch).items()))]
    parts += [part for entry in sources.items() for part in entry]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _compile(arch: str, sources: dict[str, str]) -> bytes:
    from cuda.core import Program, ProgramOptions

    with tempfile.TemporaryDirectory() as folder:
        for name, text in sources.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        options = ProgramOptions(include_path=folder, **_options(arch))
        program = Program(sources["decode.cu"], "c++", options)
        code: bytes = bytes(program.compile("cubin").code)
    return code


def _keep(path: Path, code: bytes) -> None:
    """Without a place to keep it the next process compiles again, which takes a second."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            temporary = Path(file.name)
            file.write(code)
        temporary.replace(path)
    except OSError:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
