"""Trials have a terminal where the script has one."""

import os
import pty
import subprocess
import sys

import pytest

from slipstream.run.terminal import standard_input

SCRIPT = """
import os, sys, termios
if sys.stdin.isatty():
    termios.tcflush(0, termios.TCIFLUSH)  # as who asks for a password
size = os.popen("stty size", "r").read().split()
try:
    got = input()
except EOFError:
    got = "the end"
print(size, sys.stdin.isatty(), got)
"""


def seen() -> str:
    with standard_input() as given:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], stdin=given, capture_output=True, text=True,
            check=True, timeout=30, start_new_session=True,
        )  # fmt: skip
    return done.stdout.strip()


def test_it_has_the_size_of_ours_and_nothing_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    before = os.dup(0)
    os.dup2(theirs, 0)
    try:
        subprocess.run(["stty", "rows", "33", "cols", "111"], check=True, stdin=theirs)
        assert seen() == "['33', '111'] True the end"
    finally:
        os.dup2(before, 0)
        for descriptor in (before, ours, theirs):
            os.close(descriptor)


def test_without_one_there_is_none() -> None:
    before, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    try:
        assert seen() == "[] False the end"
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(nothing)
