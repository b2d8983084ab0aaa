"""Measures what other ways to do a step would gain: on copies, when the window is over.

Each entry: {"name", "now_ms": […], "then_ms": […], "where", and facts}. The model, the optimizer,
random numbers and switches of the user's script are left as they are.
"""

from typing import TYPE_CHECKING, Any

import torch

from slipstream.doctor.record.replay_layers import replay_layers
from slipstream.doctor.record.replay_model import replay_suspects, replay_variants
from slipstream.doctor.record.replay_optimizer import replay_optimizers
from slipstream.doctor.record.stopwatch import Stopwatch, undisturbed

if TYPE_CHECKING:
    from slipstream.doctor.record.loop import LoopHooks

_SECONDS = 3.0


def replay_all(hooks: "LoopHooks") -> list[dict[str, Any]]:
    """Everything that is worth a try."""
    # Copies of a distributed model would talk to the other ranks.
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return []
    watch = Stopwatch(_SECONDS)
    found: list[dict[str, Any]] = []
    with undisturbed():
        for replay in (replay_layers, replay_suspects, replay_optimizers, replay_variants):
            try:
                found += replay(hooks, watch)
            except Exception as error:
                # A model that cannot be copied, or run twice, is not measured.
                found.append({"name": "failed", "error": type(error).__name__})
    return found
