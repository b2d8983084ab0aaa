"""The random generators of a worker, as torch sets them when it starts one."""

import random

import numpy as np
import torch
import torch.utils.data._utils.worker as torch_worker


def seed_worker(base_seed: int) -> None:
    """In a worker, for another pass: from here on it draws what a new one would."""
    info = torch_worker.get_worker_info()
    assert info is not None
    seed = base_seed + info.id
    random.seed(seed)
    torch.manual_seed(seed)
    state = torch_worker._generate_state(base_seed, info.id)  # type: ignore[no-untyped-call]
    np.random.seed(state)
    torch_worker._worker_info = torch_worker.WorkerInfo(
        id=info.id, num_workers=info.num_workers, seed=seed, dataset=info.dataset
    )
