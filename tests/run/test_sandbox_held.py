"""Functions that others took before a trial began are mapped as well."""

import os
import pickle
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from slipstream.run.sandbox.held import replace_all
from tests.run.sandbox_kit import in_trial, make_home

# As pathlib of Python 3.10 has it.
_ACCESSOR = """
import io, os, pathlib

class Accessor:
    stat = os.stat
    open = io.open
    listdir = os.listdir
    scandir = os.scandir
    chmod = os.chmod
    mkdir = os.mkdir
    unlink = os.unlink
    link = os.link
    rmdir = os.rmdir
    rename = os.rename
    replace = os.replace
    symlink = os.symlink
    readlink = os.readlink
    getcwd = os.getcwd
    realpath = staticmethod(os.path.realpath)

if not hasattr(pathlib, "_NormalAccessor"):
    pathlib._NormalAccessor = Accessor
before = dict(vars(pathlib._NormalAccessor))
"""


def test_the_functions_that_pathlib_holds(tmp_path: Path) -> None:
    said = in_trial(
        make_home(tmp_path),
        """
        held = pathlib._NormalAccessor()
        held.mkdir("new", 0o777)
        held.open("new/x.txt", "w").close()
        held.rename("log.txt", "new/log.txt")
        held.replace("data/a.txt", "new/a.txt")
        held.symlink("data", "soft", False)
        held.link("new/log.txt", "hard")
        held.chmod("data/below/b.txt", 0o600)
        held.unlink("data/below/b.txt")
        held.rmdir("data/below")
        with held.scandir("new") as entries:
            print(sorted(held.listdir(".")), sorted(entry.name for entry in entries))
        print(held.readlink("soft"), held.stat("new/x.txt").st_size, held.listdir("data"))
        os.chdir("new")
        print(os.path.basename(held.getcwd()))
        kept = {name for name, own in before.items() if vars(type(held))[name] is own}
        print(sorted(name for name in kept if name[:1] != "_"))
        """,
        first=_ACCESSOR,
    )
    lines = said.splitlines()
    assert lines[:3] == [
        "['data', 'hard', 'new', 'soft'] ['a.txt', 'log.txt', 'x.txt']",
        "data 0 []",
        "new",
    ]
    # What calls the mapped ones by itself.
    assert set(eval(lines[3])) <= {"realpath", "expanduser", "touch", "owner", "group"}


def test_functions_that_modules_hold(tmp_path: Path) -> None:
    said = in_trial(
        make_home(tmp_path),
        """
        with bz2.open("x.bz2", "wb") as file:
            file.write(b"mine")
        with tarfile.open("x.tar.gz", "w:gz") as file:
            file.add("x.bz2")
        theirs.remove("log.txt")
        theirs.rmtree("data")
        print(bz2.open("x.bz2").read(), tarfile.open("x.tar.gz").getnames(), sorted(os.listdir()))
        """,
        first="""
        import bz2, sys, tarfile, types
        theirs = sys.modules["theirs"] = types.ModuleType("theirs")
        exec("from os import remove; from shutil import rmtree", theirs.__dict__)
        """,
    )
    assert said.strip() == "b'mine' ['x.bz2'] ['x.bz2', 'x.tar.gz']"


def test_functions_that_dictionaries_and_defaults_hold(tmp_path: Path) -> None:
    said = in_trial(
        make_home(tmp_path),
        """
        np.savetxt("log.txt", [7.0])
        print(np.loadtxt("log.txt"), np.genfromtxt("log.txt"))
        HOLDER.ways["open"]("new.txt", "w").close()
        by_default("data/a.txt")
        by_name()
        print(inspect.unwrap(os.stat) is not os.stat, inspect.unwrap(open) is not open)
        with tempfile.NamedTemporaryFile() as file:
            print(os.path.exists(file.name))
        print(os.path.exists(file.name), sorted(os.listdir()))
        """,
        first="""
        import inspect, os, tempfile, numpy as np
        class Holder:
            def __init__(self): self.ways = {"open": open}
        HOLDER = Holder()
        def by_default(path, remove=os.remove): remove(path)
        def by_name(*, path="data/below/b.txt", remove=os.remove): remove(path)
        """,
    )
    assert said.splitlines() == [
        "7.0 7.0",
        "True True",
        "True",
        "False ['data', 'log.txt', 'new.txt']",
    ]


def test_functions_that_classes_hold(tmp_path: Path) -> None:
    said = in_trial(
        make_home(tmp_path),
        """
        class Late:
            _open = open
            def read(self, path): return self._open(path).read()
        Early.write("log.txt")
        print(Late().read("log.txt"), Early().read("log.txt"), Early.size("log.txt"))
        """,
        first="""
        import os
        class Early:
            _open = open
            size = staticmethod(os.stat)
            def read(self, path): return self._open(path).read()
            @classmethod
            def write(cls, path):
                with cls._open(path, "w") as file: file.write("new")
        Early().read("/dev/null")
        """,
    )
    assert said.startswith("new new os.stat_result(")
    assert "st_size=3" in said


def test_they_can_do_what_the_others_could(tmp_path: Path) -> None:
    said = in_trial(
        make_home(tmp_path),
        """
        import pickle
        print(os.utime in os.supports_follow_symlinks, os.open in os.supports_dir_fd)
        import copy
        print(copy.deepcopy(open) is open, pickle.loads(pickle.dumps(open)) is open)
        print(shutil.rmtree.avoids_symlink_attacks, pickle.loads(pickle.dumps(os.remove)).__name__)
        """,
    )
    assert said.splitlines() == ["True True"] * 2 + [
        f"{shutil.rmtree.avoids_symlink_attacks} remove"
    ]


def test_only_the_very_function_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def own() -> int:
        return 1

    def new() -> int:
        return 2

    module = ModuleType("theirs")
    module.__dict__.update(a=own, b=os.getpid, c=pickle)
    monkeypatch.setitem(sys.modules, "theirs", module)
    replace_all({own: new})
    assert module.__dict__["a"] is new
    assert module.__dict__["b"] is os.getpid
