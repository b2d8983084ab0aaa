"""Datasets that do what no dataset should, and the ways to run them."""

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.utils.data import Dataset

Act = Callable[[], object]


class Numbers(Dataset[torch.Tensor]):
    """Sample k is `width` times the number k."""

    def __init__(self, count: int, width: int = 16) -> None:
        self.count = count
        self.width = width

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.width,), index, dtype=torch.int64)


class ActsAt(Numbers):
    """Does something at one of its samples; with `once`, only while that file is there."""

    def __init__(self, count: int, at: int, act: Act, once: Path | None = None) -> None:
        super().__init__(count)
        self.at = at
        self.act = act
        self.once = once

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at and (self.once is None or self.once.exists()):
            if self.once is not None:
                self.once.unlink()
            self.act()
        return super().__getitem__(index)


class Sleeps(Numbers):
    """One of its samples takes long; writes the worker's pid to a file when it gets there."""

    def __init__(self, count: int, at: int, seconds: float, says: Path | None = None) -> None:
        super().__init__(count)
        self.at = at
        self.seconds = seconds
        self.says = says

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.at:
            if self.says is not None:
                self.says.write_text(str(os.getpid()))
            time.sleep(self.seconds)
        return super().__getitem__(index)


def is_in_order(batches: list[torch.Tensor], count: int) -> bool:
    """Whether these are all samples of `Numbers(count)`, each in its place."""
    width = batches[0].shape[1]
    return bool((torch.cat(batches) == torch.arange(count)[:, None].expand(-1, width)).all())


# Ways for a process to end.


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def terminate_itself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)


def read_nowhere() -> None:
    ctypes.string_at(0)


def exit_at_once() -> None:
    os._exit(7)


def exit_politely() -> None:
    sys.exit(3)


def abort() -> None:
    os.abort()


# Errors that do not like to travel.


class TwoArguments(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)


class RefusesText(Exception):
    def __init__(self, code: Any) -> None:
        if not isinstance(code, int):
            raise ValueError("a code, please")
        super().__init__(code)


class HasMessage(Exception):
    message = "of the class"

    def __init__(self, *, message: str = "") -> None:
        super().__init__(message)


def raise_value_error() -> None:
    raise ValueError("sample is bad")


def raise_key_error() -> None:
    raise KeyError("sample is bad")


def raise_two_arguments() -> None:
    raise TwoArguments(5, "sample is bad")


def raise_refusing() -> None:
    raise RefusesText(5)


def raise_has_message() -> None:
    raise HasMessage(message="sample is bad")


def raise_local() -> None:
    class LocalError(Exception):
        pass

    raise LocalError("sample is bad")


def raise_stop_iteration() -> None:
    raise StopIteration


# Watching others.


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """Its first true answer."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"no {what} within {seconds} s"
        time.sleep(0.02)
    return answer


def wait_for_text(path: Path, seconds: float = 60.0) -> str:
    """What another process writes to a file."""
    answer = wait_for(lambda: path.exists() and path.read_text(), f"text in {path.name}", seconds)
    return str(answer)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def run_forked(body: Callable[[], object], seconds: float = 40.0) -> int:
    """Run this in a forked child and return its exit code. 99 stands for an exception."""
    child = fork(body)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"the child did not end within {seconds} s")


def fork(body: Callable[[], object]) -> int:
    """Run this in a forked child that never comes back here; returns its pid."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        torch.set_num_threads(1)  # OpenMP's threads stayed with the parent
        # The child of a fork is no daemon, whatever pytest's process is.
        multiprocessing.current_process()._config.pop("daemon", None)  # type: ignore[attr-defined]
        # A server that pytest's process may have started is no child of this one.
        forkserver._forkserver._forkserver_pid = None  # type: ignore[attr-defined]
        forkserver._forkserver._forkserver_fd = None  # type: ignore[attr-defined]
        answer = body()
        code = answer if isinstance(answer, int) else 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
