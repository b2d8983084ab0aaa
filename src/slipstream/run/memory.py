"""What a process must be started with so that torch keeps its memory; torch is not loaded here."""

import os
from collections.abc import Mapping

VARIABLE = "MIMALLOC_PURGE_DELAY"
MARK = "SLIPSTREAM_KEEPS_MEMORY"  # the variable is ours
NEVER = "-1"
TRIED = "SLIPSTREAM_TRIED"  # where the trials of this run lie: the choice is made


def keeping(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Of a process that keeps it: the same, where the user or the trials have chosen.

    >>> keeping({"HOME": "/root"})["MIMALLOC_PURGE_DELAY"]
    '-1'
    """
    if TRIED in environment or is_chosen(environment):
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


def is_chosen(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the user has set it."""
    return VARIABLE in environment and MARK not in environment
