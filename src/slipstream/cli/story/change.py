"""The change to slow_train.py that makes it read packed photos."""

import difflib

from slipstream.errors import InternalError

_OLD = "    loader = DataLoader(Photos(photos), batch_size=16, shuffle=True)\n"
_NEW = """\
    from slipstream import Loader, augment, open_dataset

    crop = augment.RandomResizedCrop(SIZE, (0.1, 0.5), (1, 1))
    change = [crop, augment.RandomHorizontalFlip(), augment.ToTensor()]
    packed = open_dataset(photos, fields=["image", "label"], as_tuple=True)
    loader = Loader(packed, 16, shuffle=True, transform=change, device=device)
"""


def packed_version(text: str) -> str:
    """The script, reading packed photos."""
    if text.count(_OLD) != 1:
        raise InternalError(f"The script has no line {_OLD.strip()!r}.")
    return text.replace(_OLD, _NEW)


def changed_lines(old: str, new: str) -> list[str]:
    """Those of a diff that are taken away or added, without its headers.

    >>> changed_lines("a\\nb\\n", "a\\nc\\n")
    ['-b', '+c']
    """
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    return [line for line in list(lines)[2:] if line[0] in "-+" and line[1:].strip()]
