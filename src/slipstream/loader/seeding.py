"""Seeds of the global random generators in worker processes."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.utils.data._utils.worker import _generate_state

from slipstream import _native

# Numbers of transforms count from 0; these are for the seeds of whole batches and single samples.
_SEED_OP = 0xFFFFFFFF
_SAMPLE_OP = 0xFFFFFFFE


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
    _seed_all(seed, epoch, key, _SEED_OP)


def seed_for_sample(seed: int, epoch: int, index: int) -> None:
    """The same for one sample."""
    _seed_all(seed, epoch, index, _SAMPLE_OP)


@contextmanager
def kept_generators() -> Iterator[None]:
    """Give the global generators back as they were."""
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])


def _seed_all(seed: int, epoch: int, number: int, op: int) -> None:
    words = _native.philox(seed, epoch, np.asarray([number], dtype=np.int64), op, 2)[0].tolist()
    random.seed(words[0] | words[1] << 32)
    torch.default_generator.manual_seed(words[2] | (words[3] & 0x7FFFFFFF) << 32)
    np.random.seed(words[4:])
