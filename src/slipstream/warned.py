"""Warnings name a line of the script, and not one of ours that stands between it and a library."""

import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

from slipstream.patches import Patches

_OWN = f"{Path(__file__).parent}/"


def blame_the_script(patches: Patches) -> None:
    """From now on. What a library warns of in a function that we have wrapped is shown where the
    script calls that, as it is without us.
    """

    def wrap(original: Any) -> Any:
        def show(message: Any) -> None:
            if message.filename.startswith(_OWN):
                frame = _caller(_caller(sys._getframe(1), ours=True), ours=False)
                if frame is not None:
                    message.filename, message.lineno = frame.f_code.co_filename, frame.f_lineno
            original(message)

        return show

    if hasattr(warnings, "_showwarnmsg"):
        patches.replace(warnings, "_showwarnmsg", wrap)


def _caller(frame: FrameType | None, *, ours: bool) -> FrameType | None:
    """The first one from here outwards that is ours, or the script's."""
    while frame is not None and frame.f_code.co_filename.startswith(_OWN) is not ours:
        frame = frame.f_back
    return frame
