"""Measures what other ways to do a step would gain: on copies, when the window is over.

Each entry: {"name", "now_ms": […], "then_ms": […], "where", and facts}. The model, the optimizer,
random numbers and switches of the user's script are left as they are.
"""

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from slipstream.doctor.record.machine import cuda_is_in_use
from slipstream.doctor.record.replay_layers import replay_layers
from slipstream.doctor.record.replay_model import replay_suspects, replay_variants
from slipstream.doctor.record.replay_optimizer import replay_optimizers
from slipstream.doctor.record.stopwatch import Stopwatch, undisturbed

if TYPE_CHECKING:
    from slipstream.doctor.record.loop import LoopHooks

_SECONDS, _SECONDS_ON_DEVICE = 3.0, 8.0


def replay_all(hooks: "LoopHooks") -> list[dict[str, Any]]:
    """Everything that is worth a try."""
    # Copies of a distributed model would talk to the other ranks.
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return []
    found: list[dict[str, Any]] = []
    device = torch.cuda.current_device() if cuda_is_in_use() else None
    # On a stack of its own, as short as the loop's: anomaly detection notes all of it, for every
    # operation.
    thread = threading.Thread(target=_replay, args=(hooks, device, found), daemon=True)
    with undisturbed():
        thread.start()
        thread.join()
    return found


def _replay(hooks: "LoopHooks", device: int | None, found: list[dict[str, Any]]) -> None:
    watch = Stopwatch(_SECONDS if device is None else _SECONDS_ON_DEVICE)
    dtype = hooks.models.autocast_dtype
    try:
        if device is not None:
            torch.cuda.set_device(device)
        with nullcontext() if dtype is None else torch.autocast("cuda", dtype):
            _replay_each(hooks, watch, found)
    except Exception as error:
        found.append({"name": "failed", "error": type(error).__name__})


def _replay_each(hooks: "LoopHooks", watch: Stopwatch, found: list[dict[str, Any]]) -> None:
    for replay in (replay_layers, replay_suspects, replay_optimizers, replay_variants):
        try:
            found += replay(hooks, watch)
        except Exception as error:
            # A model that cannot be copied, or run twice, is not measured.
            found.append({"name": "failed", "error": type(error).__name__})
