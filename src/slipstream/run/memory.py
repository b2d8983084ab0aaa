"""What a process must be started with so that torch keeps its memory; torch is not loaded here."""

import os
from collections.abc import Mapping

VARIABLE = "MIMALLOC_PURGE_DELAY"
MARK = "SLIPSTREAM_KEEPS_MEMORY"  # the variable is ours
NEVER = "-1"


def keeping(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Of a process that keeps it: the same, where the user has chosen another setting.

    >>> keeping({"HOME": "/root"})["MIMALLOC_PURGE_DELAY"]
    '-1'
    """
    if VARIABLE in environment and MARK not in environment:
        return dict(environment)
    return {**environment, VARIABLE: NEVER, MARK: "1"}


def not_keeping(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Of a process of the script as it is.

    >>> not_keeping(keeping({"HOME": "/root"}))
    {'HOME': '/root'}
    """
    if MARK not in environment:
        return dict(environment)
    return {name: environment[name] for name in environment if name not in (VARIABLE, MARK)}
