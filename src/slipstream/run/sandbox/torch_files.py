"""torch and safetensors read and write files by themselves."""

from importlib import import_module
from typing import Any

import torch
from torch.package.package_exporter import PackageExporter
from torch.package.package_importer import PackageImporter

from slipstream.run.sandbox.layers import Layers
from slipstream.run.sandbox.paths import with_path


def wrapped(layers: Layers) -> dict[Any, Any]:
    """Their functions, with paths mapped."""

    def written(path: Any) -> Any:
        return layers.for_writing(path, keep=False)

    functions = {
        torch.save: with_path(torch.save, 1, "f", written),
        torch.load: with_path(torch.load, 0, "f", layers.for_reading),
        torch.jit.save: with_path(torch.jit.save, 1, "f", written),
        torch.jit.load: with_path(torch.jit.load, 0, "f", layers.for_reading),
        torch.export.save: with_path(torch.export.save, 1, "f", written),
        torch.export.load: with_path(torch.export.load, 0, "f", layers.for_reading),
    }
    # Compiled models write without torch.jit.save; classes have copies of the method.
    save = torch.jit._script.RecursiveScriptModule.save
    for holder in (
        torch.jit._script.RecursiveScriptModule,
        *_with_all_below(torch.jit.ScriptModule),
    ):
        if vars(holder).get("save") is save:
            holder.save = with_path(save, 1, "f", written)
    reads = with_path(PackageImporter.__init__, 1, "file_or_buffer", layers.for_reading)
    PackageImporter.__init__ = reads  # type: ignore[method-assign]
    for holder, name, argument in _written_by_c():
        setattr(holder, name, with_path(getattr(holder, name), 1, argument, written))
    functions[torch.from_file] = _from_file(torch.from_file, layers)
    storage = torch.UntypedStorage
    storage.from_file = staticmethod(_from_file(storage.from_file, layers))  # type: ignore[method-assign]
    safetensors = _safetensors()
    if safetensors is not None:
        write, read = safetensors.serialize_file, safetensors.safe_open
        functions[write] = with_path(write, 1, "filename", written)
        functions[read] = with_path(read, 0, "filename", layers.for_reading)
    return functions


def _written_by_c() -> list[tuple[Any, str, str]]:
    """Methods of packages and profilers."""
    names = [
        (PackageExporter, "__init__", "f"),
        (torch.autograd.profiler.profile, "export_chrome_trace", "path"),
        (torch.profiler.profiler._KinetoProfile, "export_chrome_trace", "path"),
        (torch.profiler.ExecutionTraceObserver, "register_callback", "output_file_path"),
    ]
    return [(holder, name, argument) for holder, name, argument in names if hasattr(holder, name)]


def _from_file(original: Any, layers: Layers) -> Any:
    def from_file(filename: Any, *args: Any, **kwargs: Any) -> Any:
        is_shared = kwargs.get("shared", bool(args) and args[0])
        if is_shared:
            mapped = layers.for_writing(filename, keep=True)
        else:
            mapped = layers.for_reading(filename)
        return original(mapped, *args, **kwargs)

    return from_file


def _with_all_below(holder: Any) -> list[Any]:
    return [holder, *(found for each in holder.__subclasses__() for found in _with_all_below(each))]


def _safetensors() -> Any:
    """With its modules, which take functions from it; None where it is not installed."""
    try:
        for part in (".numpy", ".torch"):
            import_module(f"safetensors{part}")
        return import_module("safetensors")
    except ImportError:
        return None
