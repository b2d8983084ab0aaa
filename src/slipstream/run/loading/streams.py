"""Files that a dataset holds open, and streams in memory. What samples write to them in another
process waits in a buffer there and is lost; what they read may be written anew by the loop.
"""

import io
import os
import sys
from _io import FileIO  # io's is another in trials
from typing import Any

from slipstream.run.loading.insides import Inside
from slipstream.run.loading.stamps import lasting_stamp_of, stamp_of

STREAMS = (
    FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.BufferedRWPair,
    io.TextIOWrapper, io.StringIO,
)  # fmt: skip


def of_stream(thing: Any, name: str) -> Inside:
    """Of one of them."""
    if thing is sys.__stdout__ or thing is sys.__stderr__:
        return Inside()  # what is printed shows
    if thing.closed:
        return Inside([lambda: thing.closed])
    if isinstance(thing, io.StringIO):
        return Inside(why_not=f"it holds {name}, to which samples may write")
    if thing.writable():
        return Inside(why_not="it holds a file that is open for writing")
    if isinstance(thing, io.TextIOWrapper):
        return Inside(parts=[thing.buffer])
    if isinstance(thing, FileIO):
        lasting_stamp_of(thing.fileno())  # from here on a change shows
        found = os.fstat(thing.fileno())
        files = [(found.st_dev, found.st_ino)]
        return Inside([lambda: stamp_of(thing.fileno())], files=files)
    return Inside(parts=[thing.raw])
