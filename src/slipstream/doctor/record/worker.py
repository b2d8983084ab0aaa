"""What runs in a loader's worker process in place of torch's loop: the same, watched.

Found by name: processes that are spawned import this module and need nothing else.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from torch.utils.data import _utils
from torch.utils.data.dataloader import _DatasetKind

from slipstream.doctor.capture import Process
from slipstream.doctor.record.mailbox import Mailbox
from slipstream.doctor.record.opens import OpenCount
from slipstream.doctor.record.reading import (
    FOLDER_VARIABLE,
    Hooks,
    Reading,
    mailbox_path,
    time_fetcher,
)
from slipstream.doctor.record.rungs import Rungs, obey
from slipstream.doctor.record.stages import StageLog
from slipstream.tracebacks import hide_own_frames

_torch_loop = _utils.worker._worker_loop
_TorchWrapper = _utils.worker.ExceptionWrapper  # type: ignore[attr-defined]
_WORKER_ID = 10  # its place among the arguments of torch's loop


def worker_loop(*args: Any, **kwargs: Any) -> None:
    """torch's worker loop, watched where a recording is under way."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None or not Path(folder).is_dir():
        _torch_loop(*args, **kwargs)
        return
    began = time.perf_counter_ns()
    # In a forked process the parent's hooks would note the parent's stages.
    from slipstream.doctor.record import loaders

    loaders.forget_in_child()
    log = StageLog()
    process = Process(os.getpid(), loader=0, number=int(args[_WORKER_ID]), began=began)
    reading = Reading(process, log, Mailbox(mailbox_path(Path(folder))))
    hooks = Hooks(log)
    hooks.look_at(args[1])
    hooks.look_inside(args[1])
    rungs = Rungs(Path(folder))
    opens = OpenCount(process, rungs)
    create = _DatasetKind.create_fetcher

    def create_timed(*given: Any) -> Any:
        fetcher = create(*given)  # type: ignore[no-untyped-call]
        process.ready = process.ready or time.perf_counter_ns()
        return obey(time_fetcher(fetcher, reading), rungs, {})

    _DatasetKind.create_fetcher = staticmethod(create_timed)  # type: ignore[method-assign]
    reading.sample()
    _utils.worker.ExceptionWrapper = _without_our_frames  # type: ignore[assignment,attr-defined]
    reading.own_parts["set_up"] = time.perf_counter_ns() - began
    try:
        _torch_loop(*args, **kwargs)
    finally:
        opens.is_on = False
        reading.write(force=True)


def _without_our_frames(where: str) -> Any:
    """An error as torch sends it to the loop, with the frames of the user's code and of torch."""
    error = sys.exc_info()[1]
    assert error is not None
    hide_own_frames(error)
    return _TorchWrapper((type(error), error, error.__traceback__), where)  # type: ignore[no-untyped-call]
