"""Which filesystem a path lies on, and what is below it."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

_TABLE = Path("/proc/self/mountinfo")
# Filesystems whose bytes come from another machine, from the host of this one, or from a program.
_REMOTE = {
    *("9p", "afs", "beegfs", "ceph", "cifs", "drvfs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4"),
    *("orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs", "wekafs"),
}
_LOCAL_FUSE = {"fuseblk"}


@dataclass(frozen=True)
class Mount:
    """A mounted filesystem. What cannot be known is None."""

    kind: str  # as the system calls it: ext4, nfs4, fuse.sshfs
    point: str
    source: str  # what is mounted: /dev/nvme0n1p1, server:/export
    device: str | None  # the block device, nvme0n1p1
    remote: bool  # a network, the host of a virtual machine or a program gives the bytes
    rotational: bool | None  # a disk with heads; None for virtual disks, which only claim to know
    below: str | None = None  # of an overlay: the kind of filesystem that holds what is written


def mount_of(path: Path) -> Mount | None:
    """Look it up. Never raises; None where the system does not say."""
    try:
        if _TABLE.exists():
            return find_mount(_TABLE.read_text(errors="surrogateescape"), path.resolve())
        return _mount_by_psutil(path.resolve())
    except (OSError, ValueError, RuntimeError):
        return None


def find_mount(table: str, path: Path) -> Mount | None:
    r"""Find it in a text like /proc/self/mountinfo.

    >>> table = r"31 1 0:44 / /data\040sets rw shared:1 - nfs4 server:/export rw"
    >>> find_mount(table, Path("/data sets/cats/1.jpg"))
    Mount(kind='nfs4', point='/data sets', source='server:/export', device=None, remote=True, rotational=None, below=None)
    """  # noqa: E501  one line of output
    best: tuple[list[str], list[str]] | None = None
    longest = -1
    for line in table.splitlines():
        front, _, back = line.partition(" - ")
        fields, rest = front.split(), back.split()
        if len(fields) < 5 or len(rest) < 2:
            continue
        parts = len(Path(_unescaped(fields[4])).parts)
        # Of two mounts on one folder the later one hides the earlier.
        if parts >= longest and path.is_relative_to(_unescaped(fields[4])):
            best, longest = (fields, rest), parts
    return None if best is None else _mount_from(table, *best)


def is_remote(kind: str) -> bool:
    """Whether the bytes of such a filesystem come from elsewhere.

    >>> is_remote("fuse.gcsfuse"), is_remote("nfs4"), is_remote("ext4"), is_remote("fuseblk")
    (True, True, False, False)
    """
    return kind in _REMOTE or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)


def _mount_from(table: str, fields: list[str], rest: list[str]) -> Mount:
    kind, source = rest[0], _unescaped(rest[1])
    device = _block_device(fields[2], source)
    return Mount(
        kind=kind,
        point=_unescaped(fields[4]),
        source=source,
        device=None if device is None else device.name,
        remote=is_remote(kind),
        rotational=None if device is None else _is_rotational(device),
        below=_below(table, rest[2] if len(rest) > 2 else "") if kind == "overlay" else None,
    )


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def _block_device(number: str, source: str) -> Path | None:
    """Its folder in /sys. Filesystems over several devices have no number of their own."""
    folder = Path("/sys/dev/block") / number
    if not folder.exists() and source.startswith("/dev/"):
        try:
            device = Path(source).stat().st_rdev
        except OSError:
            return None
        folder = Path("/sys/dev/block") / f"{os.major(device)}:{os.minor(device)}"
    return folder.resolve() if folder.exists() else None


def _is_rotational(device: Path) -> bool | None:
    if device.name.startswith(("vd", "xvd")):
        return None
    for folder in (device, device.parent):  # a partition's disk is the folder around it
        try:
            return (folder / "queue/rotational").read_text().strip() == "1"
        except OSError:
            continue
    return None


def _below(table: str, options: str) -> str | None:
    """Of the upper folder, or the first lower one; in a container neither can be seen."""
    for name in ("upperdir", "lowerdir"):
        found = re.search(rf"(?:^|,){name}=([^,:]+)", options)
        if found and Path(folder := _unescaped(found[1])).exists():
            mount = find_mount(table, Path(folder))
            return None if mount is None or mount.kind == "overlay" else mount.kind
    return None


def _mount_by_psutil(path: Path) -> Mount | None:
    import psutil

    around = [
        part
        for part in psutil.disk_partitions(all=True)
        if part.mountpoint and path.is_relative_to(part.mountpoint)
    ]
    if not around:
        return None
    part = max(around, key=lambda part: len(Path(part.mountpoint).parts))
    device = Path(part.device).name if part.device.startswith("/dev/") else None
    remote = is_remote(part.fstype)
    return Mount(part.fstype, part.mountpoint, part.device, device, remote, None)
