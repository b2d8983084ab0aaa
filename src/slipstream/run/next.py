"""What to type next, when a run is over."""

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slipstream.doctor.attribute import LOADING, Loading, attribute
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed
from slipstream.doctor.rules.pictures import decode_ms, pictures_of
from slipstream.doctor.simulate import simulate
from slipstream.launch import Target
from slipstream.run.fix import Situation
from slipstream.run.outcome import FixOutcome
from slipstream.run.speed import Speed

_PACKED = 0.38  # of the time that Pillow takes for a crop of a file
_AHEAD = 2  # batches of a thread
_LEAST_SHARE = 0.3  # of a batch in decoders
_LEAST_GAIN = 1.05
_MOSTLY = 0.8  # of a step
_OF_LOADING = frozenset({"more-workers", "uint8-bus"})
_SPLITS = frozenset({
    "train", "training", "val", "valid", "validation", "dev", "eval", "test", "testing",
})  # fmt: skip


@dataclass(frozen=True)
class Next:
    """A command line, and what it is for."""

    command: str
    why: str


def next_of(
    target: Target, situation: Situation, fixes: Sequence[FixOutcome], speed: Speed | None
) -> Next:
    """The one that promises most."""
    packed = speed and _pack(situation, speed)
    if packed:
        return packed
    script = _command_line(target)
    numeric = [fix.name for fix in fixes if fix.why.endswith("--allow numeric")]
    if _waits_for_data(situation):
        numeric = [name for name in numeric if name in _OF_LOADING]
    if numeric:
        names = ", ".join(numeric)
        why = f"the same maths with other rounding, and kept where it is faster: {names}"
        return Next(f"slipstream run --allow numeric {script}", why)
    return Next(f"slipstream doctor --examine {script}", "what is left in a step, in detail")


def _waits_for_data(situation: Situation) -> bool:
    """Whether the model's own time hardly counts."""
    report = situation.report
    waited_ms = report.get("parts", {}).get(LOADING, 0.0)
    return bool(waited_ms > _MOSTLY * (report.get("step_ms") or math.inf))


def _pack(situation: Situation, speed: Speed) -> Next | None:
    """Where the loop still waits for pictures that lie in files."""
    case = Case(situation.capture, attribute(situation.capture))
    loading = feed(case)
    if loading is None or case.pipeline is None:
        return None
    pictures, folder = pictures_of(loading), folder_of(loading)
    share = decode_ms(loading) / loading.batch_ms
    if pictures is None or "JPEG" not in pictures.formats or folder is None:
        return None
    if share < _LEAST_SHARE:
        return None
    gain = packed_gain(case, 1000 / speed.after, share)
    if gain < _LEAST_GAIN:
        return None
    name = shlex.quote(f"{Path(folder).name}.slip")
    return Next(
        f"slipstream pack {shlex.quote(folder)} {name}",
        f"crops read and decode only their part of a picture; read with slipstream.Loader,"
        f" about {gain:.1f} x on top, or more",
    )


def packed_gain(case: Case, now_ms: float, decode_share: float) -> float:
    """How much faster a step would be than `now_ms`, by the simulation: slipstream.Loader makes
    batches with a thread for each core. What is not decoding takes as long as in the script, though
    the Loader's own transforms take less.
    """
    now = case.pipeline  # with what others took of the cores, which `now_ms` has, too
    assert now is not None
    cores = case.capture.machine.get("usable_cores") or 1
    share = 1.0 - decode_share + decode_share * _PACKED
    fetch_ms = tuple(share * ms for ms in now.fetch_ms)
    packed = replace(now, workers=cores, cores=cores, prefetch=_AHEAD, fetch_ms=fetch_ms)
    return now_ms / max(simulate(packed).step_ms, 1e-6)


def folder_of(loading: Loading) -> str | None:
    """Where the files of all samples lie: one folder, or the folders of classes inside one."""
    counts: dict[str, int] = {}
    for process in loading.processes:
        for folder, count in process.folders.items():
            counts[folder] = counts.get(folder, 0) + count
    most = max(counts.values(), default=0)
    # Others are of a list or a cache that is read once.
    folders = [folder for folder, count in counts.items() if count >= 0.1 * most]
    if not folders:
        return None
    try:
        common = os.path.commonpath(folders)
        parts = {Path(folder).relative_to(common).parts[:1] for folder in folders}
        if len(parts) > 1 and all(part and part[0].lower() in _SPLITS for part in parts):
            # Training and validation, read by the same process.
            common = max(
                (str(Path(common, *part)) for part in parts),
                key=lambda split: sum(
                    n for f, n in counts.items() if Path(f).is_relative_to(split)
                ),
            )
            folders = [folder for folder in folders if Path(folder).is_relative_to(common)]
            common = os.path.commonpath([*folders, common])
    except ValueError:
        return None
    depth = max(len(Path(folder).parts) for folder in folders) - len(Path(common).parts)
    is_known = Path(common).is_dir() and depth <= 2 and common not in ("", os.sep)
    return common if is_known else None


def _command_line(target: Target) -> str:
    name = ["-m", target.name] if target.is_module else [target.name]
    return shlex.join([*name, *target.args])
