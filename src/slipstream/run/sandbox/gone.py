"""What a trial has removed of the user's files, known to all its processes."""

import os

from slipstream.run.sandbox import plain

_END = b"\0"


class Gone:
    """Paths whose old content, and all below them, stays hidden: what is written there anew begins
    empty. They stand in a file that every process of the trial reads on when it has grown.
    """

    def __init__(self, file: str) -> None:
        self._file, self._read = file, 0
        self._paths: set[str] = set()
        plain.close(plain.open_number(file, os.O_CREAT | os.O_WRONLY, 0o600))

    def add(self, path: str) -> None:
        """It is not there any more."""
        self._append(os.fsencode(path))

    def note_links(self) -> None:
        """Where paths lead may be another place from here on."""
        self._append(b"")

    def has_news(self) -> bool:
        """Whether any process has said something since the last time."""
        start = self._read
        try:
            size = plain.stat(self._file).st_size
        except OSError:
            return False
        if size == start:
            return False
        number = plain.open_number(self._file, os.O_RDONLY)
        try:
            data = plain.read_at(number, size - start, start)
        finally:
            plain.close(number)
        *entries, rest = data.split(_END)
        self._paths.update(os.fsdecode(entry) for entry in entries if entry)
        self._read = start + len(data) - len(rest)
        return bool(entries)

    def hides(self, path: str) -> bool:
        """Whether the old content of a path cannot be seen."""
        paths = self._paths
        if not paths:
            return False
        while path:
            if path in paths:
                return True
            path = path.rpartition("/")[0]
        return False

    def hides_in(self, folder: str) -> bool:
        """Whether something below a folder cannot be seen."""
        return any(path.startswith(f"{folder}/") for path in self._paths)

    def _append(self, entry: bytes) -> None:
        # One write is one entry, whoever else writes.
        number = plain.open_number(self._file, os.O_WRONLY | os.O_APPEND)
        try:
            plain.write(number, entry + _END)
        finally:
            plain.close(number)
