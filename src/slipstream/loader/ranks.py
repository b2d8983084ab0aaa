"""This process's place among those that train together."""

import os

import torch.distributed


def ranks_here() -> int:
    """How many ranks share this machine's cores, as the launcher says.

    >>> ranks_here()
    1
    """
    count = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(count)) if count.isdecimal() else 1


def rank_and_world() -> tuple[int, int]:
    """Rank and number of ranks, from torch.distributed, else from the launcher's environment.

    >>> rank_and_world()
    (0, 1)
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank, world = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    if rank.isdecimal() and world.isdecimal() and int(rank) < int(world):
        return int(rank), int(world)
    return 0, 1
