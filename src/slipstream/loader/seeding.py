"""Seeds of the global random generators in worker processes."""

import random

import numpy as np
import torch
from torch.utils.data._utils.worker import _generate_state

from slipstream import _native

# Numbers of transforms count from 0; this one is for the seeds of whole batches.
_SEED_OP = 0xFFFFFFFF


def seed_for_worker(base_seed: int, number: int) -> int:
    """Seed this process as torch seeds its worker `number`; returns the seed."""
    seed = base_seed + number
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(_generate_state(base_seed, number))  # type: ignore[no-untyped-call]
    return seed


def seed_for_batch(seed: int, epoch: int, key: int) -> None:
    """Seed this process for one batch: what the dataset draws depends on the batch alone, not on
    who makes it nor on what came before.
    """
    words = _native.philox(seed, epoch, np.asarray([key], dtype=np.int64), _SEED_OP, 2)[0].tolist()
    random.seed(words[0] | words[1] << 32)
    torch.default_generator.manual_seed(words[2] | (words[3] & 0x7FFFFFFF) << 32)
    np.random.seed(words[4:])
