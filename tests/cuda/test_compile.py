"""Kernels for the GPU at hand: what is said where there is none, and how they are kept on disk."""

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata, resources
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from slipstream.cuda import compile as compiling
from slipstream.cuda.compile import cache_folder, load_kernels, why_not
from slipstream.errors import MissingExtra, SlipstreamError, UsageError

GPU = torch.device("cuda", 0)
CUBIN = b"\x7fELF, or what the compiler makes of it"


class Gpu:
    """A machine with a GPU, as torch and cuda-core show it; `compiled` counts the compilations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.capability = (9, 0)
        self.compiled: list[dict[str, Any]] = []
        self.loaded: list[bytes] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: self.capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
        monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
        monkeypatch.setattr(compiling.metadata, "version", lambda name: "1.0")
        package, core = ModuleType("cuda"), ModuleType("cuda.core")
        package.core = core  # type: ignore[attr-defined]
        for name in ("Device", "ObjectCode", "Program", "ProgramOptions"):
            setattr(core, name, getattr(self, f"_{name}"))
        monkeypatch.setitem(sys.modules, "cuda", package)
        monkeypatch.setitem(sys.modules, "cuda.core", core)

    @staticmethod
    def _Device(index: int) -> Any:
        return type("Device", (), {"set_current": lambda self: None})()

    @staticmethod
    def _ProgramOptions(**options: Any) -> dict[str, Any]:
        return options

    def _Program(self, source: str, language: str, options: dict[str, Any]) -> Any:
        folder = Path(options["include_path"])
        included = re.findall(r'#include "(.+)"', source)
        assert included and all((folder / name).is_file() for name in included)
        self.compiled.append(options)
        code = type("Code", (), {"code": CUBIN})()
        return type("Program", (), {"compile": lambda self, kind: code})()

    @property
    def _ObjectCode(self) -> Any:
        def from_cubin(code: bytes) -> Any:
            self.loaded.append(code)
            return type("Module", (), {"get_kernel": lambda self, name: f"kernel {name}"})()

        return type("ObjectCode", (), {"from_cubin": staticmethod(from_cubin)})


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Gpu]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiling._load.cache_clear()
    yield Gpu(monkeypatch)
    compiling._load.cache_clear()


def load_anew() -> dict[str, Any]:
    """As in a new process."""
    compiling._load.cache_clear()
    return load_kernels(GPU)


# Where it cannot be.


def check_refused(device: torch.device, kind: type[SlipstreamError], *words: str) -> None:
    """The reason is the same for who asks and for who insists, who also learns the way out."""
    reason = why_not(device)
    assert all(word in reason for word in words), reason
    with pytest.raises(kind) as caught:
        load_kernels(device)
    message = str(caught.value)
    assert message.startswith(f"Cannot decode on {device}: {reason}.")
    assert message.endswith('Or decode on the CPU: Loader(..., decode="cpu").')


def test_the_processor_is_no_gpu() -> None:
    check_refused(torch.device("cpu"), UsageError, "needs a CUDA device, not cpu")


def test_no_gpu_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    check_refused(GPU, UsageError, f"torch {torch.__version__} sees no CUDA device here")


def test_a_gpu_that_is_too_old_is_named(gpu: Gpu) -> None:
    gpu.capability = (7, 0)
    check_refused(GPU, UsageError, "Some GPU has compute capability 7.0, 7.5 is needed")


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0), (10, 0), (12, 1)])
def test_gpus_from_turing_on_will_do(gpu: Gpu, capability: tuple[int, int]) -> None:
    gpu.capability = capability
    assert why_not(GPU) == ""
    load_kernels(GPU)
    assert gpu.compiled[0]["arch"] == f"sm_{capability[0]}{capability[1]}"


@pytest.mark.parametrize(("cuda", "extra"), [("13.0", "cuda"), ("12.8", "cuda12"), (None, "cuda")])
def test_a_missing_package_is_named_with_the_line_to_type(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, cuda: str | None, extra: str
) -> None:
    """The one that goes with the CUDA of this torch; and there is such an extra."""
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    line = f"pip install '.[{extra}]' in Slipstream's folder"
    check_refused(GPU, MissingExtra, "cuda-core is not installed", line)
    assert extra in (metadata.metadata("slipstream").get_all("Provides-Extra") or [])


# What is compiled, and kept.


def test_kernels_come_by_name(gpu: Gpu) -> None:
    kernels = load_kernels(GPU)
    defined = re.findall(r'extern "C" __global__[^(]*\([^)]*\)\s*(\w+)\(', sources()["decode.cu"])
    assert list(kernels) == defined
    assert kernels["decode_segments"] == "kernel decode_segments"


def test_they_are_compiled_once_and_then_found_on_disk(gpu: Gpu) -> None:
    assert load_kernels(GPU) is load_kernels(GPU)
    load_anew()
    assert len(gpu.compiled) == 1
    assert gpu.loaded == [CUBIN, CUBIN]
    (kept,) = cache_folder().iterdir()
    assert re.fullmatch(r"decode-sm_90-[0-9a-f]{24}\.cubin", kept.name)
    assert kept.read_bytes() == CUBIN


def test_the_cache_lies_where_caches_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "slipstream"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "slipstream"


def test_each_gpu_has_its_own(gpu: Gpu) -> None:
    load_kernels(GPU)
    gpu.capability = (8, 0)
    load_anew()
    assert [options["arch"] for options in gpu.compiled] == ["sm_90", "sm_80"]
    assert len(list(cache_folder().iterdir())) == 2


def test_the_key_changes_with_all_that_the_code_hangs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.metadata, "version", lambda name: "1.0")
    key, given = compiling._key, {"a.cu": "1", "b.cuh": "2"}
    keys = [
        key("sm_90", given),
        key("sm_80", given),
        key("sm_90", {"a.cu": "1", "b.cuh": "3"}),
        key("sm_90", {"a.cu": "1", "c.cuh": "2"}),
        key("sm_90", {"a.cu": "1"}),
    ]
    monkeypatch.setattr(compiling.metadata, "version", lambda name: "1.1")
    keys.append(key("sm_90", given))
    monkeypatch.setattr(compiling.platform, "machine", lambda: "aarch64")
    on_arm = key("sm_90", given)
    monkeypatch.setattr(compiling.platform, "machine", lambda: "x86_64")
    keys.append(key("sm_90", given))
    # One of the two is this machine's.
    assert on_arm != keys[-1] and len({*keys, on_arm}) == 7
    assert key("sm_90", dict(given)) == keys[-1]


def test_code_is_in_its_place_whole_or_not_at_all(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may read it at any moment, and this one may end at any moment."""
    seen: list[tuple[bytes, bool]] = []
    replace = Path.replace

    def watch(self: Path, target: Path) -> Path:
        seen.append((self.read_bytes(), target.exists()))
        assert self.parent == target.parent, "renaming is atomic inside one folder"
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watch)
    load_kernels(GPU)
    assert seen == [(CUBIN, False)]


def test_a_disk_that_refuses_does_no_harm(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    assert load_kernels(GPU)
    assert list(cache_folder().glob("*.cubin")) == []


def test_a_folder_that_cannot_be_written_does_no_harm(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_anew() and load_anew()
    assert len(gpu.compiled) == 2


def test_a_user_without_a_home_does_no_harm(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number that no one has given a name."""

    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", refuse)
    assert load_kernels(GPU)


def test_an_empty_file_is_compiled_anew(gpu: Gpu) -> None:
    load_kernels(GPU)
    (kept,) = cache_folder().iterdir()
    kept.write_bytes(b"")
    load_anew()
    assert len(gpu.compiled) == 2 and kept.read_bytes() == CUBIN


# The source.


def sources() -> dict[str, str]:
    folder = resources.files("slipstream.cuda") / "kernels"
    return {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir()}


def test_all_sources_come_with_the_package() -> None:
    found = compiling._sources()
    assert found == sources() and list(found) == sorted(found)
    included = {name for text in found.values() for name in re.findall(r'#include "(.+)"', text)}
    assert included | {"decode.cu"} == set(found)


def test_sources_need_no_header_but_their_own() -> None:
    """The compiler that comes with cuda-core has none."""
    assert not any(re.search(r"#include\s*<", text) for text in compiling._sources().values())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc on the PATH")
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_nvcc_compiles_them_without_a_warning(arch: str, tmp_path: Path) -> None:
    for name, text in sources().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    output = tmp_path / "decode.cubin"
    command = ["nvcc", "-std=c++17", "-cubin", f"-arch={arch}", "-o", output, "decode.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert output.stat().st_size > 0
