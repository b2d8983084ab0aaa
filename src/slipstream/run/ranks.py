"""What the ranks of a distributed run tell each other, so that all of them decide alike.

Words go over the store of torchrun's agent, below a name of their own. Nobody waits without an
end: a rank that does not answer ends the others.
"""

import json
import os
import socket
from datetime import timedelta
from typing import Any

from slipstream.errors import UsageError

_PATIENCE_S = 60.0
_MOMENT_S = 10.0
_AGENT = "TORCHELASTIC_USE_AGENT_STORE"


class Ranks:
    """One process: there is nobody to ask."""

    rank = 0
    world = 1

    def all(self, value: Any, patience_s: float = _PATIENCE_S) -> list[Any]:
        """The values of all ranks, in their order. All of them have to ask."""
        return [value]

    def first(self, value: Any) -> Any:
        """The value of the first rank."""
        return self.all(value)[0]

    def environment(self) -> dict[str, str]:
        """For processes that make a process group of their own, away from the script's."""
        return {}

    def tell(self, value: Any) -> None:
        """To whoever asks `told_by`; nobody has to."""

    def told_by(self, rank: int) -> Any:
        """What a rank has told; None where it has not in a while."""

    def say(self, word: str) -> None:
        """To whoever asks `has_said`."""

    def has_said(self, rank: int, word: str) -> bool:
        """Whether a rank has said it."""
        return True


class StoreRanks(Ranks):
    """Of torchrun."""

    def __init__(self, rank: int, world: int, store: Any, patience_s: float = _PATIENCE_S) -> None:
        """`store` is one of torch's, the same for all."""
        self.rank, self.world = rank, world
        self._store = store
        self._patience_s = patience_s
        self._count = 0

    def all(self, value: Any, patience_s: float | None = None) -> list[Any]:
        """Raises `UsageError` where one does not ask in time."""
        number, self._count = self._count, self._count + 1
        self._store.set(f"{number}/{self.rank}", json.dumps(value))
        limit = timedelta(seconds=patience_s or self._patience_s)
        values = []
        for rank in range(self.world):
            key = f"{number}/{rank}"
            try:
                self._store.wait([key], limit)
            except Exception:
                raise UsageError(
                    f"Rank {rank} did not answer within {limit.total_seconds():.0f} s:"
                    " the ranks cannot decide together."
                ) from None
            values.append(json.loads(self._store.get(key)))
        return values

    def environment(self) -> dict[str, str]:
        """All ranks have to ask: the first finds a port that is free."""
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        return {"MASTER_PORT": str(self.first(port)), _AGENT: "False"}

    def tell(self, value: Any) -> None:
        """Once."""
        self._store.set(f"told/{self.rank}", json.dumps(value))

    def told_by(self, rank: int) -> Any:
        """Waits for it."""
        try:
            self._store.wait([f"told/{rank}"], timedelta(seconds=_MOMENT_S))
        except Exception:
            return None
        return json.loads(self._store.get(f"told/{rank}"))

    def say(self, word: str) -> None:
        """Stays said."""
        self._store.set(f"{word}/{self.rank}", "1")

    def has_said(self, rank: int, word: str) -> bool:
        """At once."""
        return bool(self._store.check([f"{word}/{rank}"]))


def find_ranks(purpose: str) -> Ranks:
    """Of this process, by what torchrun has put into its environment."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    has_agent = os.environ.get(_AGENT) == "True"
    if world < 2 and not has_agent:
        return Ranks()
    if not has_agent:
        raise UsageError(
            "Several ranks are tried together where torchrun has started them:"
            " torchrun … -m slipstream run train.py ARGS."
        )
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    agent = TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False,
        timeout=timedelta(seconds=_PATIENCE_S),
    )  # fmt: skip
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    prefix = "/".join(("slipstream-run", purpose, *(os.environ.get(name, "") for name in names)))
    store = PrefixStore(prefix, agent)
    return StoreRanks(int(os.environ["RANK"]), world, store)
