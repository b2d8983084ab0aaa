"""What a worker tells the recorder, without a queue: the latest text in a file both have mapped.

Two halves are written in turn and a number says which is whole, so a reader never sees half a text,
even of a process that was killed.
"""

import mmap
import struct
from pathlib import Path

_HALF = 1 << 20
_HEADER = struct.Struct("<QQ")  # number of the text, its length


class Mailbox:
    """The writer's end."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(2 * (_HALF + _HEADER.size))
            self._map = mmap.mmap(file.fileno(), 0)
        self._number = 0

    def write(self, text: bytes) -> bool:
        """Replace the text; False where it is too long, and the one before stays."""
        if len(text) > _HALF:
            return False
        self._number += 1
        at = (self._number % 2) * (_HALF + _HEADER.size)
        _HEADER.pack_into(self._map, at, 0, 0)
        self._map[at + _HEADER.size : at + _HEADER.size + len(text)] = text
        _HEADER.pack_into(self._map, at, self._number, len(text))
        return True


def read_mailbox(path: Path) -> bytes | None:
    """The latest whole text, or None."""
    data = path.read_bytes()
    found: tuple[int, bytes] = (0, b"")
    for at in (0, _HALF + _HEADER.size):
        if len(data) < at + _HEADER.size:
            break
        number, length = _HEADER.unpack_from(data, at)
        if number > found[0] and length <= _HALF:
            found = number, data[at + _HEADER.size : at + _HEADER.size + length]
    return found[1] if found[0] else None
