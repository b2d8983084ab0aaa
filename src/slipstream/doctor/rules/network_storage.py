"""`network-storage`: samples come over a network, one by one."""

from slipstream.doctor.attribute import Loading
from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth
from slipstream.doctor.rules.storage import reading_ms

NAME = "network-storage"
HEALTHY = "samples lie on storage of this machine"
_KINDS = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "glusterfs", "beegfs", "gpfs", "afs",
    "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.goofys", "fuse.mountpoint-s3", "fuse.juicefs",
    "fuse.glusterfs", "fuse.rclone", "fuse.blobfuse", "fuse.blobfuse2", "fuse.ceph",
)  # fmt: skip


def find(case: Case) -> list[Finding]:
    """Files on a network's filesystem, and the loop waits for them."""
    loading = feed(case)
    kind = None if loading is None else network_of(loading)
    if loading is None or kind is None:
        return []
    spent = reading_ms(loading)
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    return [
        Finding(
            rule=NAME,
            title=(
                f"Samples lie on {kind}; reading takes a worker {spent:.1f} ms of"
                f" {loading.batch_ms:.1f} ms for a batch."
            ),
            where=_where(case, loading),
            cost_ms=cost,
            fix="Copy the data to a disk of this machine once, packed into one file.",
            fix_class="E",
            gain=Gain(0.5 * cost, cost),
        )
    ]


def _where(case: Case, loading: Loading) -> str | None:
    """The line that most reads come from; else where samples are read at all."""
    lines = case.reader_lines(lambda line: line.stage.startswith("read:"))
    known = lines[0][0] if lines else loading.loader.facts.get("read_at")
    return known or loading.loader.made_at


def network_of(loading: Loading) -> str | None:
    """The kind of the network's filesystem that files were opened on."""
    for process in loading.processes:
        for kind in process.facts.get("filesystems", {}).values():
            if kind in _KINDS:
                return str(kind)
    return None
