"""Late pictures in the workers of DataLoaders, however those are started."""

import warnings
from typing import Any

from torch.utils.data import _utils

from slipstream.run.fix import Undo

_TORCHS = "torch.utils.data._utils.worker", "_worker_loop"


class Loop:
    """What a worker runs: `earlier`, with pictures installed before. Forked workers have them;
    processes that are spawned get this object by pickle, and install them.
    """

    def __init__(self, earlier: Any) -> None:
        self.earlier = earlier

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """In the worker."""
        try:
            from slipstream.run.pictures.install import install

            install(in_worker=True)
        except Exception as error:
            warnings.warn(
                f"slipstream: pictures stay Pillow's in a worker ({error}).", stacklevel=2
            )
        self.earlier(*args, **kwargs)

    def __reduce__(self) -> Any:
        name = getattr(self.earlier, "__module__", ""), getattr(self.earlier, "__qualname__", "")
        # torch's own cannot be pickled while something else has its name.
        return _loop_in_child, (None if name == _TORCHS else self.earlier,)


def _loop_in_child(earlier: Any) -> Loop:
    return Loop(earlier or _utils.worker._worker_loop)


def follow() -> Undo:
    """Into workers that start from now on."""
    before = _utils.worker._worker_loop
    ours: Any = Loop(before)
    _utils.worker._worker_loop = ours

    def undo() -> None:
        if _utils.worker._worker_loop is ours:
            _utils.worker._worker_loop = before

    return undo
