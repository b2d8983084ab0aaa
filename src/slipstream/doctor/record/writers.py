"""Functions that write: to a terminal, a log, a file. Timed where the training loop calls them."""

import sys
from typing import TYPE_CHECKING, Any

from slipstream.doctor.capture import CALL, SAVE

if TYPE_CHECKING:  # rules ask here for names, and need no torch for that
    from slipstream.doctor.record.trace import Trace
    from slipstream.patches import Patches

_FUNCTIONS = (
    ("builtins", "print"),
    ("logging", "Logger.handle"),
    ("json", "dump"),
    ("pickle", "dump"),
    ("os", "fsync"),
    ("numpy", "save"),
    ("numpy", "savez"),
    ("numpy", "savez_compressed"),
    ("numpy", "savetxt"),
    ("pathlib", "Path.write_text"),
    ("pathlib", "Path.write_bytes"),
    ("tqdm.std", "tqdm.refresh"),
    ("tqdm.std", "tqdm.write"),
    ("rich.console", "Console.print"),
    ("rich.live", "Live.refresh"),
    ("matplotlib.figure", "Figure.savefig"),
    ("PIL.Image", "Image.save"),
    ("pandas", "DataFrame.to_csv"),
    ("pandas", "DataFrame.to_parquet"),
    ("torchvision.utils", "save_image"),
    ("wandb", "log"),
    ("wandb.sdk.wandb_run", "Run.log"),
    ("mlflow", "log_metric"),
    ("mlflow", "log_metrics"),
    *(
        (module, f"SummaryWriter.add_{what}")
        for module in ("torch.utils.tensorboard.writer", "tensorboardX.writer")
        for what in (
            "scalar", "scalars", "histogram", "image", "images", "figure", "text", "graph",
            "embedding", "video", "audio", "mesh", "pr_curve",
        )
    ),
)  # fmt: skip
_CHECKPOINTS = (
    ("safetensors.torch", "save_file"),
    ("safetensors.torch", "save_model"),
    ("joblib", "dump"),
    ("torch.distributed.checkpoint", "save"),
)


def short_name(module: str, path: str) -> str:
    """As a person calls it."""
    plain = module in ("builtins", "pathlib", "logging", "tqdm.std", "rich.console", "rich.live")
    is_method = "." in path
    return path if plain or is_method else f"{module.rpartition('.')[2]}.{path}"


WRITERS = frozenset(short_name(*entry) for entry in _FUNCTIONS)
CHECKPOINTS = frozenset(("torch.save", *(short_name(*entry) for entry in _CHECKPOINTS)))


class WriterHooks:
    """Hooks on those whose modules are imported; asked again, on those imported since."""

    def __init__(self, trace: "Trace", patches: "Patches") -> None:
        self._trace = trace
        self._patches = patches
        self._done: set[tuple[str, str]] = set()
        self._inside = False
        from torch.compiler import is_compiling

        self._is_compiling = is_compiling

    def install(self) -> None:
        """Cheap enough for every step of the beginning."""
        for kind, entries in ((CALL, _FUNCTIONS), (SAVE, _CHECKPOINTS)):
            for module_name, path in entries:
                owner: Any = sys.modules.get(module_name)
                if owner is None or (module_name, path) in self._done:
                    continue
                self._done.add((module_name, path))
                *parents, name = path.split(".")
                for parent in parents:
                    owner = getattr(owner, parent, None)
                if owner is not None:
                    what = short_name(module_name, path)
                    self._patches.replace(owner, name, self._outermost(kind, what))

    def _outermost(self, kind: str, what: str) -> Any:
        """A writer that writes with another one is counted once."""
        timed = self._trace.counted(kind, what)

        def wrap(function: Any) -> Any:
            counted = timed(function)

            def call(*args: Any, **kwargs: Any) -> Any:
                if self._is_compiling() or self._inside or not self._trace.is_here:
                    return function(*args, **kwargs)
                self._inside = True
                try:
                    return counted(*args, **kwargs)
                finally:
                    self._inside = False

            return call

        return wrap
