"""The errors Slipstream raises. One root, one class per kind of trouble.

Messages say what is wrong, where, what was found, what was expected and what to do.
"""


class SlipstreamError(Exception):
    """Root of all errors that Slipstream raises on purpose.

    >>> import slipstream
    >>> try:
    ...     slipstream.open_dataset("no/such/folder")
    ... except slipstream.SlipstreamError as error:
    ...     print(type(error).__name__)
    UsageError
    """


class CorruptDataset(SlipstreamError):
    """Bytes on disk break the format: data went bad, or a writer is wrong.

    Attributes: `what` is wrong, `where` (file, and place in it), `got`, `expected`. Survives
    pickling, so a loader's worker process can hand it to its parent.

    >>> str(CorruptDataset("bad magic", where="00000.slip", got="b'x'", expected="b'y'"))
    "00000.slip: bad magic: got b'x', expected b'y'"
    """

    def __init__(
        self, what: str, *, where: str = "", got: object = "", expected: object = "", do: str = ""
    ) -> None:
        self.what = what
        self.where = where
        self.got = str(got)
        self.expected = str(expected)
        self.do = do
        message = f"{where}: {what}" if where else what
        if self.got:
            message += f": got {self.got}"
        if self.expected:
            message += f"{', ' if self.got else ': '}expected {self.expected}"
        super().__init__(f"{message}. {do}" if do else message)

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the parts: keyword-only arguments do not survive the default."""
        return _rebuild_corrupt, (self.what, self.where, self.got, self.expected, self.do)


class UsageError(SlipstreamError):
    """The call or the command cannot work as given; the message says what to change."""


class BadSource(SlipstreamError):
    """An item of a source cannot be packed: unreadable picture, missing file, value of a wrong
    kind.
    """


class StorageError(SlipstreamError):
    """The machine refused to store or read bytes: disk full, no permission, out of mappings."""


class MissingExtra(SlipstreamError):
    """An optional dependency is not installed; the message holds the `pip install` line."""


class InternalError(SlipstreamError):
    """A bug in Slipstream. Please report it with the message."""


def _rebuild_corrupt(what: str, where: str, got: str, expected: str, do: str) -> CorruptDataset:
    return CorruptDataset(what, where=where, got=got, expected=expected, do=do)
