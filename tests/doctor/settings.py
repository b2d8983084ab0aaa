"""What a script needs of the machine to be sick: several ranks, a quota, little memory, a network.

A script asks for it in its second line, as in `# under: cpu-quota=1`. Each setting is the real
thing, made for one run and taken away behind it; most need root on Linux.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_SWAP_BYTES = 1 << 30
_DELAY_S = 0.002  # of an answer that comes over the network
_SFTP = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server")


class Unavailable(Exception):
    """This machine does not let us; says why."""


@dataclass(frozen=True)
class Place:
    """Where to run: what stands before a command, and variables for it."""

    before: tuple[str, ...] = (sys.executable,)
    environment: dict[str, str] = field(default_factory=dict)


def place(under: str | None) -> AbstractContextManager[Place]:
    """The setting that a script asks for; the plain machine for None."""
    name, _, value = (under or "plain").partition("=")
    return _SETTINGS[name](value)


@contextmanager
def _plain(_: str) -> Iterator[Place]:
    yield Place()


@contextmanager
def _ranks(count: str) -> Iterator[Place]:
    """So many processes of one training, with a core each."""
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count)
    yield Place((sys.executable, *launch), {"OMP_NUM_THREADS": "1"})


@contextmanager
def _cpu_quota(cores: str) -> Iterator[Place]:
    quota = int(float(cores) * _PERIOD_US)
    with _group("cpu", {
        "cpu.max": f"{quota} {_PERIOD_US}", "cpu.cfs_quota_us": str(quota),
    }) as enter:  # fmt: skip
        yield Place(enter)


@contextmanager
def _memory(limit: str) -> Iterator[Place]:
    """So much memory, and behind it swap on the disk."""
    _need("mkswap", "swapon", "swapoff")
    with tempfile.TemporaryDirectory() as folder:
        swap = Path(folder) / "swap"
        swap.touch(0o600)
        try:
            with swap.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, _SWAP_BYTES)
        except OSError as error:
            raise Unavailable(f"no room for swap: {error.strerror}") from None
        _run("mkswap", str(swap))
        _run("swapon", str(swap))
        try:
            with _group("memory", {"memory.max": limit, "memory.limit_in_bytes": limit}) as enter:
                yield Place(enter)
        finally:
            _run("swapoff", str(swap))


@contextmanager
def _shared_memory(size: str) -> Iterator[Place]:
    _need("unshare")
    mount = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", mount, "sh", sys.executable)
    _run(*before[:-1], "true")
    yield Place(before)


@contextmanager
def _network(_: str) -> Iterator[Place]:
    """FOLDER lies on a server that takes a while to answer."""
    _need("sshfs")
    server_path = next((path for path in _SFTP if Path(path).exists()), None)
    if server_path is None or not Path("/dev/fuse").exists():
        raise Unavailable("needs /dev/fuse and OpenSSH's sftp-server")
    with ExitStack() as stack:
        real, mounted = (stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(2))
        to_client, for_client = map(stack.enter_context, socket.socketpair())
        to_server, for_server = map(stack.enter_context, socket.socketpair())
        stack.enter_context(_running([server_path], for_server))
        stack.callback(_run_anyway, "umount", "--lazy", mounted)
        stack.enter_context(
            _running(["sshfs", "-f", "-o", "passive", f":{real}", mounted], for_client)
        )
        for source, target, delay_s in (
            (to_client, to_server, 0.0), (to_server, to_client, _DELAY_S),
        ):  # fmt: skip
            threading.Thread(target=_forward, args=(source, target, delay_s), daemon=True).start()
        _wait_until(lambda: Path(mounted).is_mount(), "sshfs did not mount")
        yield Place(environment={"FOLDER": mounted})


@contextmanager
def _running(command: list[str], talks_to: socket.socket) -> Iterator[None]:
    process = subprocess.Popen(command, stdin=talks_to, stdout=talks_to)
    talks_to.close()
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _forward(source: socket.socket, target: socket.socket, delay_s: float) -> None:
    with suppress(OSError):  # closed at the end
        while data := source.recv(1 << 18):
            time.sleep(delay_s)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    ends = time.monotonic() + 10
    while not condition():
        if time.monotonic() > ends:
            raise Unavailable(otherwise)
        time.sleep(0.05)


@contextmanager
def _group(controller: str, values: dict[str, str]) -> Iterator[tuple[str, ...]]:
    """What stands before a command that shall run in a control group with these values: those of
    them that this machine's version of control groups knows.
    """
    first = _GROUPS / controller
    base = first if first.is_dir() else _GROUPS
    group = base / f"slipstream-{uuid.uuid4().hex[:8]}"
    try:
        if base == _GROUPS:
            (base / "cgroup.subtree_control").write_text(f"+{controller}")
        group.mkdir()
    except OSError as error:
        raise Unavailable(f"cannot make a control group: {error.strerror}") from None
    try:
        known = {name: value for name, value in values.items() if (group / name).exists()}
        if not known:
            raise Unavailable(f"this machine's control groups do not limit {controller}")
        for name, value in known.items():
            (group / name).write_text(value)
        enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        yield ("sh", "-c", enter, "sh", sys.executable)
    finally:
        _end_all_in(group)
        group.rmdir()


def _end_all_in(group: Path) -> None:
    """What a command has left running there would keep the group."""
    ends = time.monotonic() + 10
    while (left := (group / "cgroup.procs").read_text().split()) and time.monotonic() < ends:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        time.sleep(0.05)


def _need(*programs: str) -> None:
    if missing := [name for name in programs if shutil.which(name) is None]:
        raise Unavailable(f"needs {', '.join(missing)}")


def _run_anyway(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{command[0]}: {done.stderr.strip() or done.returncode}")


_SETTINGS: dict[str, Callable[[str], AbstractContextManager[Place]]] = {
    "plain": _plain,
    "ranks": _ranks,
    "cpu-quota": _cpu_quota,
    "memory": _memory,
    "shared-memory": _shared_memory,
    "network": _network,
}
