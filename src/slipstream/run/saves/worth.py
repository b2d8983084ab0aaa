"""Which checkpoints are worth a thread: copying, starting it and sharing cores cost, too."""

_LONG_S = 0.02
_LARGE_BYTES = 16 * 2**20  # taken to be long until one was timed


class Worth:
    """Remembers how long files of about a size took at best."""

    def __init__(self) -> None:
        self._best_s: dict[int, float] = {}

    def is_long(self, size: int) -> bool:
        """Whether the loop would wait long for a file with this many bytes of tensors."""
        known = self._best_s.get(size.bit_length())
        return size >= _LARGE_BYTES if known is None else known >= _LONG_S

    def note(self, size: int, seconds: float) -> None:
        """One has been written."""
        about = size.bit_length()
        self._best_s[about] = min(seconds, self._best_s.get(about, seconds))
