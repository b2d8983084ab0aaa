"""The folder that a pack works in: locked, continued after an interruption, moved at the end.

`DST.partial/plan.json` says what is being packed. Shards appear in the folder one by one; a
manifest appears when all are there, and from then on only the move to `DST` is left.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.errors import CorruptDataset, UsageError
from slipstream.pack.writer import shard_name, sync_folder, write_file
from slipstream.store.manifest import MANIFEST_NAME, Manifest, ShardEntry, serialize_manifest
from slipstream.store.reader import read_manifest
from slipstream.store.schema import Field
from slipstream.store.shard import open_shard

PLAN_NAME = "plan.json"
_SHARD_FILE = re.compile(r"\d{5,}\.slip\Z")
Facts = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What is packed where. `facts` are what changes the bytes; all of them must agree to go on.

    `base` is the manifest of the dataset that is appended to, `made_by` goes into the new one.
    """

    dst: Path
    facts: Facts
    fields: tuple[Field, ...]
    made_by: dict[str, Any]
    base: Manifest | None = None
    can_continue: bool = True

    @property
    def folder(self) -> Path:
        """The folder that the pack works in."""
        return self.dst.with_name(self.dst.name + ".partial")

    @property
    def first_number(self) -> int:
        """Number of the first new shard."""
        return len(self.base.shards) if self.base is not None else 0

    @property
    def fingerprint(self) -> str:
        """A hash of the facts."""
        return hashlib.sha256(_dump(self.facts)).hexdigest()


@dataclass
class Workplace:
    """The locked folder.

    `finished` shards are from an earlier, interrupted run; the next item to pack is `next_item`.
    `is_whole` says that only the move to the destination is left, `is_ours` that the folder holds
    this plan's work.
    """

    plan: Plan
    lock: int
    finished: list[ShardEntry] = field(default_factory=list)
    next_item: int = 0
    is_whole: bool = False
    is_ours: bool = False

    def _has_work(self) -> bool:
        """Whether the folder holds a finished shard, or a manifest that waits for its move."""
        names = [path.name for path in self.plan.folder.iterdir()]
        return MANIFEST_NAME in names or any(_SHARD_FILE.match(name) for name in names)

    def commit(self, manifest: Manifest) -> None:
        """Write the manifest and move everything to the destination."""
        folder, dst = self.plan.folder, self.plan.dst
        data = serialize_manifest(manifest)
        if self.plan.base is None:
            write_file(folder / MANIFEST_NAME, data)
            (folder / PLAN_NAME).unlink(missing_ok=True)
            folder.rename(dst)
            self.is_ours = False
            sync_folder(dst.parent)
            return
        # The plan keeps the outcome, so that a run after a kill can tell whether it was done.
        outcome = json.loads(data)["crc32c"]
        write_file(folder / PLAN_NAME, _plan_file(self.plan, outcome=outcome))
        write_file(folder / MANIFEST_NAME, data)
        self.finish_append(manifest)

    def finish_append(self, manifest: Manifest) -> None:
        """Move the new shards, then the manifest: readers see the old dataset or the new one."""
        folder, dst = self.plan.folder, self.plan.dst
        for entry in manifest.shards[self.plan.first_number :]:
            with suppress(FileNotFoundError):  # moved before an interruption
                (folder / entry.file).rename(dst / entry.file)
        sync_folder(dst)
        (folder / MANIFEST_NAME).replace(dst / MANIFEST_NAME)
        sync_folder(dst)
        _remove(folder)
        self.is_ours = False

    def close(self) -> None:
        """Give the lock back; remove a folder in which there is nothing to go on from.

        Safe to call twice.
        """
        if self.lock >= 0:
            if self.is_ours and not self._has_work():
                _remove(self.plan.folder)
            os.close(self.lock)
            self.lock = -1


def open_workplace(plan: Plan) -> Workplace:
    """Lock `DST.partial`, make it if need be, and find out what an earlier run has left there.

    Raises `UsageError` when another pack is at work there, or has left something else there.
    """
    lock = _lock(plan.folder)
    place = Workplace(plan, lock)
    try:
        _check_unchanged(plan)
        _take_over(place)
        place.is_ours = True
    except BaseException:
        place.close()
        raise
    return place


def is_append_done(plan: Plan) -> bool:
    """Whether an interrupted append had already replaced the manifest; cleans up after it.

    True only if it was the same append that is asked for now.
    """
    if plan.base is None or not plan.folder.is_dir():
        return False
    lock = _lock(plan.folder)
    try:
        stored = _read_plan(plan.folder)
        if stored is None:
            # An empty folder is the last trace of an append; the manifest says of which.
            appended = plan.base.made_by.get("appended")
            made_by = json.loads(_dump(plan.made_by))
            is_last = isinstance(appended, list) and appended[-1:] == [made_by]
            is_done = is_last and not any(plan.folder.iterdir())
        elif stored.get("outcome") == plan.base.crc32c:
            is_done = _same_but_base(stored.get("facts"), plan.facts)
        else:
            return False
        if is_done or stored is not None:
            _remove(plan.folder)
        return is_done
    finally:
        os.close(lock)


def _check_unchanged(plan: Plan) -> None:
    """The destination is what it was before the lock: another pack may just have finished."""
    if plan.base is None:
        is_same = not plan.dst.exists()
    else:
        is_same = read_manifest(plan.dst).crc32c == plan.base.crc32c
    if not is_same:
        with suppress(OSError):
            plan.folder.rmdir()
        raise UsageError(f"{plan.dst} was changed by another pack just now. Repeat the command.")


def _take_over(place: Workplace) -> None:
    plan, folder = place.plan, place.plan.folder
    stored = _read_plan(folder)
    if stored is None:
        _take_over_without_plan(place)
        return
    if stored.get("fingerprint") != plan.fingerprint:
        differs = _differences(stored, plan.facts)
        raise UsageError(
            f"{folder} holds an unfinished pack that differs in: {differs}."
            f" Repeat that command, or delete {folder} and start again."
        )
    if (folder / MANIFEST_NAME).is_file():
        place.is_whole = True
        return
    if not plan.can_continue:
        _remove_shards(folder, keep=0)
        return
    place.finished, place.next_item = _find_finished(plan)
    _remove_shards(folder, keep=plan.first_number + len(place.finished))


def _take_over_without_plan(place: Workplace) -> None:
    """Nothing was begun, or a run was killed between removing its plan and the last rename."""
    plan, folder = place.plan, place.plan.folder
    names = {path.name for path in folder.iterdir()} - {PLAN_NAME + ".tmp"}
    if not names:
        write_file(folder / PLAN_NAME, _plan_file(plan))
        return
    with suppress(CorruptDataset, UsageError):
        manifest = read_manifest(folder)
        if plan.base is None and (manifest.fields, manifest.made_by) == (plan.fields, plan.made_by):
            place.is_whole = True
            return
    raise UsageError(
        f"{folder} exists and is no unfinished pack of this source. Delete or move it."
    )


def _find_finished(plan: Plan) -> tuple[list[ShardEntry], int]:
    """Whole shards of an earlier run, in order, and the first source item behind them."""
    finished: list[ShardEntry] = []
    next_item = 0
    while True:
        number = plan.first_number + len(finished)
        path = plan.folder / shard_name(number)
        if not path.is_file():
            return finished, next_item
        try:
            shard = open_shard(path, number, plan.fields)
            for column_field, id_ in list(shard.columns)[:-1]:
                shard.check_column(column_field, id_)
            first, end = shard.notes()["source"]
            if first != next_item or end <= first:
                return finished, next_item
        except (CorruptDataset, KeyError, TypeError, ValueError):
            # Packed again: cheaper than asking somebody what happened to it.
            return finished, next_item
        finished.append(ShardEntry(path.name, shard.samples, shard.map.size, shard.footer.crc))
        next_item = end


def _remove_shards(folder: Path, *, keep: int) -> None:
    """Remove temporary files, and shards numbered `keep` or higher."""
    for path in folder.iterdir():
        is_shard = _SHARD_FILE.match(path.name) is not None
        if path.name.endswith(".tmp") or (is_shard and int(path.stem) >= keep):
            path.unlink()


def _lock(folder: Path) -> int:
    """A lock on the folder itself, so that no lock file is left anywhere."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise UsageError(
                f"Another pack is at work in {folder}. Wait for it, or choose another destination."
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(folder.stat(), os.fstat(lock)):
                return lock
        # The other pack finished and moved the folder while it was being opened.
        os.close(lock)


def _read_plan(folder: Path) -> dict[str, Any] | None:
    try:
        stored = json.loads((folder / PLAN_NAME).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return stored if isinstance(stored, dict) else None


def _plan_file(plan: Plan, *, outcome: int | None = None) -> bytes:
    body: dict[str, Any] = {"facts": plan.facts, "fingerprint": plan.fingerprint}
    if outcome is not None:
        body["outcome"] = outcome
    return _dump(body)


def _dump(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def _same_but_base(stored: object, facts: Facts) -> bool:
    plain = json.loads(_dump(facts))
    return isinstance(stored, dict) and {**stored, "base": None} == {**plain, "base": None}


def _differences(stored: dict[str, Any], facts: Facts) -> str:
    before = stored.get("facts")
    if not isinstance(before, dict):
        return "everything"
    facts = json.loads(_dump(facts))
    parts = []
    for name in sorted({**before, **facts}):
        there, now = before.get(name), facts.get(name)
        if there == now:
            continue
        if isinstance(there, dict) and isinstance(now, dict):
            parts += [
                f"{option} ({_show(there.get(option))} there, {_show(now.get(option))} now)"
                for option in sorted({**there, **now})
                if there.get(option) != now.get(option)
            ]
        elif isinstance(there, str) and name != "source files":
            parts.append(f"{name} ({there} there, {now} now)")
        else:
            parts.append(name)
    return ", ".join(parts) or "its fingerprint"


def _show(value: object) -> str:
    return "not given" if value is None else str(value)


def _remove(folder: Path) -> None:
    """Remove the folder with what a pack puts there, and nothing else."""
    _remove_shards(folder, keep=0)
    for name in (MANIFEST_NAME, PLAN_NAME):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def check_destination(dst: Path, *, append: bool) -> Manifest | None:
    """The manifest to append to, or None for a new dataset. Raises `UsageError`."""
    if append:
        base = read_manifest(dst)
        _check_names(dst, base)
        return base
    if (dst / MANIFEST_NAME).is_file():
        raise UsageError(
            f"{dst} is a packed dataset already."
            " Add to it with --append, or choose another destination."
        )
    refuse_other(dst)
    return None


def _check_names(dst: Path, base: Manifest) -> None:
    """New shards get their names by number: none of them may be a file of the dataset."""
    for number, entry in enumerate(base.shards):
        is_named = _SHARD_FILE.match(entry.file) is not None
        if is_named and int(Path(entry.file).stem) >= len(base.shards):
            raise UsageError(
                f"Cannot append: shard {number} of {dst} is called {entry.file}, a name that new"
                f" shards need; expected {shard_name(number)}. Pack into a new dataset."
            )


def refuse_other(dst: Path) -> None:
    """Raise `UsageError` when something is at `dst`."""
    if dst.exists() or dst.is_symlink():
        raise UsageError(f"{dst} exists and is not a packed dataset. Choose another destination.")


def check_apart(src: Path, dst: Path) -> None:
    """Raise `UsageError` when the destination is the source, or inside it."""
    if dst.resolve().is_relative_to(src.resolve()):
        place = "the source itself" if dst.resolve() == src.resolve() else f"inside {src}"
        raise UsageError(f"{dst} is {place}. Choose a destination outside of the source.")


def shards_of(base: Manifest | None) -> Sequence[ShardEntry]:
    """The shards that a new manifest starts with."""
    return base.shards if base is not None else ()
