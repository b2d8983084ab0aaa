"""Puts findings in order: a cause before its consequences, and no consequence that says no more."""

from dataclasses import replace

from slipstream.doctor.finding import Finding

# How well a rule names what to change; findings that explain the same time stand in this order.
# Waste of one kind first, then who could do the work meanwhile, then work that is just much.
_WASTE = (
    "reopened-files", "row-by-row", "slow-collate", "per-sample-indexing", "needless-copy",
    "oversized-decode", "late-crop", "slow-tokenizing", "float-collate", "repeated-preprocessing",
    "slow-sample", "shallow-prefetch", "network-storage", "cold-reads", "small-files",
    "library-threads",
)  # fmt: skip
# Of these, what is wrong whoever does the work.
_FAULTS = ("reopened-files", "row-by-row", "slow-collate", "needless-copy", "slow-tokenizing")
_WORK = ("slow-transform", "heavy-augmentation", "slow-decoder")
_ALIKE = 0.7  # of the cost of the other: then both explain the same time

# rule: those that say no more where it explains the same time
_SILENCES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_WASTE, (*_WORK, "storage-wait", "too-few-workers")),
    **dict.fromkeys((*_WORK, "no-workers", "too-few-workers"), ("storage-wait",)),
    "oversized-decode": (*_WORK, "storage-wait", "too-few-workers", "repeated-preprocessing"),
    "network-storage": (
        *_WORK, "storage-wait", "too-few-workers", "small-files", "cold-reads", "reopened-files",
    ),
    "cold-reads": (*_WORK, "storage-wait", "too-few-workers", "small-files"),
    "slow-tokenizing": (*_WORK, "storage-wait", "too-few-workers", "slow-collate"),
    "late-crop": (*_WORK, "storage-wait", "repeated-preprocessing"),
    # What is copied is no time of the code around it.
    "needless-copy": ("storage-wait", "too-few-workers"),
    **dict.fromkeys(("sync-each-step", "hidden-sync", "blocking-copy"), ("python-in-loop",)),
    "slow-worker-start": ("workers-restarted", "loader-recreated"),
}  # fmt: skip
# rule: those that it stands before, though they may cost more
_BEFORE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_WASTE, ("too-few-workers", *_WORK)),
    **dict.fromkeys(_FAULTS, ("no-workers", "too-few-workers", *_WORK)),
    **dict.fromkeys(_WORK, ("too-few-workers",)),
    "needless-copy": ("no-workers", "too-few-workers"),
    "swapping": ("no-workers", "too-few-workers", "storage-wait", *_WASTE, *_WORK),
}
# What it explains is not theirs, however much more they take: without memory all is slow.
_ALWAYS = ("swapping",)


def arrange(findings: list[Finding]) -> list[Finding]:
    """The dearest first, but what explains another's time before it, or in its place."""
    kept = [
        finding
        for finding in findings
        if not any(
            finding.rule in _SILENCES.get(other.rule, ()) and explains(other, finding)
            for other in findings
        )
    ]
    return sorted(_without_overlap(kept), key=lambda finding: -finding.cost_ms)


def _without_overlap(findings: list[Finding]) -> list[Finding]:
    """What a cause explains of another's time is its own: the other keeps the rest."""
    charged = []
    for finding in findings:
        causes = [
            other.cost_ms
            for other in findings
            if finding.rule in _BEFORE.get(other.rule, ())
            and (other.rule in _ALWAYS or explains(other, finding))
        ]
        rest = max(0.0, finding.cost_ms - max(causes, default=0.0))
        gain = finding.gain
        if gain is not None and causes:
            gain = replace(gain, low_ms=min(gain.low_ms, rest), high_ms=min(gain.high_ms, rest))
        charged.append(replace(finding, cost_ms=rest, gain=gain))
    return charged


def explains(cause: Finding, other: Finding) -> bool:
    """Whether most of the other's cost is this one's, too."""
    return cause.cost_ms > 0 and cause.cost_ms >= _ALIKE * other.cost_ms
