"""`file-handles`: files that are opened for every sample are parsed and mapped once.

The script opens and closes its own handles as ever, so that nothing is shared between them; what
is kept in each process is what opening has to find out: the directory of a zip archive (and of an
.npz file), the mapping of a numpy.memmap that is only read, and for HDF5 a handle of our own, with
which the library keeps what it knows of the file. A file that changes is read anew. A handle locks
its file against being written to: none is kept where the script writes HDF5, too.
"""

import ast
import importlib
import io
import operator
import os
import zipfile
from _io import FileIO  # io's is another in trials
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.patches import Patches
from slipstream.run.diff.calls import called_name
from slipstream.run.files.kept import Kept, stamp
from slipstream.run.fix import Fix, Situation, Undo

NAME = "file-handles"
RULE = "reopened-files"
_STAGES = ("read: ZipFile", "read: numpy.load", "read: h5py.File")
_OFTEN = 0.4  # of the samples
_MAPS = ("np.memmap(", "numpy.memmap(")
_DIRECTORY = ("start_dir", "_comment")
_ENTRY = operator.attrgetter(
    "filename", "orig_filename", "date_time", "compress_type", "comment", "extra", "flag_bits",
    "external_attr", "header_offset", "CRC", "compress_size", "file_size",
)  # fmt: skip


def applies(situation: Situation) -> tuple[bool, str]:
    """Where samples open what was open before, or the script maps files."""
    for process in situation.capture.processes:
        for stage in _STAGES:
            times = process.stages.get(stage)
            if times is not None and times.count >= max(2, _OFTEN * process.samples):
                return True, f"{stage.partition(': ')[2]} for every sample"
    if any(name in source for source in _sources(situation) for name in _MAPS):
        return True, "numpy.memmap in the script"
    return False, "no zip, .npz, HDF5 or mapped file is opened again and again"


def apply(situation: Situation) -> Undo:
    """In every process of the script."""
    patches = Patches()
    directories, maps = _Directories(situation), _Maps(situation)
    patches.replace(zipfile.ZipFile, "_RealGetContents", directories.wrap)
    patches.replace(np.memmap, "__new__", maps.wrap)
    handles = _Handles(situation)
    if any("read: h5py.File" in process.stages for process in situation.capture.processes):
        if any(map(_writes_hdf5, _sources(situation))):
            situation.note(NAME, "HDF5 left alone: the script writes it as well", left=True)
        else:
            patches.replace(importlib.import_module("h5py").File, "__init__", handles.wrap)

    def undo() -> None:
        patches.undo()
        handles.kept.clear()
        maps.kept.clear()

    return undo


@dataclass(frozen=True)
class _Directory:
    """`entries` are what the files had when they were read."""

    attributes: dict[str, Any]
    files: list[zipfile.ZipInfo]
    names: dict[str, zipfile.ZipInfo]
    entries: list[Any]


class _Directories:
    """Of zip archives that are read."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._kept: Kept[_Directory] = Kept()

    def wrap(self, original: Any) -> Any:
        def get_contents(archive: Any) -> None:
            key = self._key(archive)
            known = None if key is None else self._kept.get(key, key)
            # Entries are the same for all who open it: one may have been renamed.
            if known is None or _entries(known.files) != known.entries:
                original(archive)
                if key is not None:
                    self._kept.put(key, key, _directory(archive))
                return
            vars(archive).update(known.attributes)
            # Its own, if the script should change them.
            archive.filelist = list(known.files)
            archive.NameToInfo = dict(known.names)

        return get_contents

    def _key(self, archive: Any) -> Any:
        """None for what is no plain file that is only read."""
        try:
            file = archive.fp
            is_plain = (
                type(archive) is zipfile.ZipFile
                and archive.mode == "r"
                and not archive.debug
                and getattr(archive, "metadata_encoding", None) is None
                and type(file) is io.BufferedReader
                and type(file.raw) is FileIO
            )
            return stamp(file.fileno()) if is_plain else None
        except Exception as error:
            self._situation.give_up(NAME, error)
            return None


class _Maps:
    """Of files that numpy maps to read."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self.kept: Kept[np.memmap[Any, Any]] = Kept()

    def wrap(self, original: Any) -> Any:
        def new(subtype: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
            key = self._key(subtype, filename, args, kwargs)
            if key is None:
                return original(subtype, filename, *args, **kwargs)
            name, now = key
            known = self.kept.get(name, now)
            if known is None:
                known = original(subtype, filename, *args, **kwargs)
                if known.mode != "r":
                    return known
                self.kept.put(name, now, known)
            return known.view()

        return staticmethod(new)

    def _key(self, subtype: Any, filename: Any, args: Any, kwargs: Any) -> Any:
        mode = kwargs.get("mode", args[1] if len(args) > 1 else "r+")
        is_path = isinstance(filename, (str, os.PathLike))
        if subtype is not np.memmap or not is_path or mode not in ("r", "readonly"):
            return None
        if NAME in self._situation.failures:
            return None
        try:
            described = (type(filename), os.fspath(filename), repr(args), repr(kwargs), os.getcwd())  # noqa: PTH109
            return described, stamp(filename)
        except OSError:
            return None  # numpy says what is wrong
        except Exception as error:
            self._situation.give_up(NAME, error)
            return None


class _Handles:
    """Of HDF5 files: one of ours stays open beside those of the script, and the library shares what
    it knows between them.
    """

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self.kept: Kept[Any] = Kept(drop=lambda file: file.close())
        os.register_at_fork(before=self.kept.clear)

    def wrap(self, original: Any) -> Any:
        def init(file: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
            is_path = isinstance(name, (str, os.PathLike)) and not args and not kwargs
            key = os.path.realpath(name) if is_path else None
            if mode != "r" and key is not None:
                self.kept.forget(key)  # it can be written to only while nobody reads
            original(file, name, mode, *args, **kwargs)
            if mode == "r" and key is not None:
                self._keep(original, type(file), key)

        return init

    def _keep(self, original: Any, kind: Any, key: str) -> None:
        if NAME in self._situation.failures:
            return
        try:
            now = stamp(key)
            if self.kept.get(key, now) is None:
                mine = kind.__new__(kind)
                original(mine, key, "r")
                self.kept.put(key, now, mine)
        except Exception as error:
            self._situation.give_up(NAME, error)


def _directory(archive: Any) -> _Directory:
    return _Directory(
        {name: getattr(archive, name) for name in _DIRECTORY},
        list(archive.filelist),
        dict(archive.NameToInfo),
        _entries(archive.filelist),
    )


def _entries(files: list[zipfile.ZipInfo]) -> list[Any]:
    return list(map(_ENTRY, files))


def _writes_hdf5(source: str) -> bool:
    """Whether something of that name may be opened for more than to read it.

    >>> _writes_hdf5('h5py.File(name, "a")'), _writes_hdf5('h5py.File(name, "r")')
    (True, False)
    """
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError):
        return True
    for call in calls:
        modes = [*call.args[1:2], *(k.value for k in call.keywords if k.arg in ("mode", None))]
        if called_name(call) == "File" and any(
            getattr(mode, "value", None) != "r" for mode in modes
        ):
            return True
    return False


def _sources(situation: Situation) -> Iterator[str]:
    """The script's own files, as far as the recording names them."""
    capture = situation.capture
    places = {line.where for line in capture.lines} | set(capture.statements) | {capture.script}
    for name in sorted({place.partition(":")[0] for place in places}):
        path = Path(name)
        if path.suffix == ".py" and path.is_file():
            yield path.read_text(errors="replace")


FIX = Fix(
    NAME, "E", "files that are opened for every sample are parsed and mapped once", (RULE,),
    applies, apply,
)  # fmt: skip
