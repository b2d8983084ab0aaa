"""Fixes as changes of source: each in its own way, or by `slipstream.speed_up`."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.run.diff import loop, switches
from slipstream.run.diff.head import TopLine, top_edits
from slipstream.run.diff.source import Edit, NoEdit, edited
from slipstream.run.diff.workspace import Workspace
from slipstream.run.fix import Situation
from slipstream.run.speed_up import NOT_HERE

Rewriter = Callable[[Workspace, Situation], list[Edit | TopLine]]

# The others have no lines of their own: what they do depends on more than a line can say, as on how
# much memory is left. Loader is none for DataLoader: its order of shuffle=True is another one.
REWRITERS: dict[str, Rewriter] = {
    "kept-memory": switches.kept_memory,
    "threads": switches.threads,
    "own-kernels": switches.own_kernels,
    "tf32": switches.tf32,
    "cudnn-benchmark": switches.cudnn_benchmark,
    "fused-optimizer": loop.fused_optimizer,
    "foreach-optimizer": loop.foreach_optimizer,
    "zero-grad": loop.zero_grad,
    "more-workers": loop.more_workers,
    "non-blocking-copies": loop.non_blocking_copies,
    "inference-mode": loop.inference_mode,
}
BY_CALL = "slipstream.speed_up"


@dataclass
class Patch:
    """Texts of files before and after. `forms` says of each fix how it was made; `left_out`, why it
    was not.
    """

    before: dict[Path, str] = field(default_factory=dict)
    after: dict[Path, str] = field(default_factory=dict)
    forms: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def edited(self) -> list[str]:
        """Fixes that have lines of their own."""
        return [name for name, form in self.forms.items() if not form.startswith(BY_CALL)]


def make_patch(
    names: Iterable[str], space: Workspace, situation: Situation, by_call: Collection[str] = ()
) -> Patch:
    """`by_call` are fixes that are not to have lines of their own."""
    patch = Patch()
    changes: list[Edit | TopLine] = []
    called: list[str] = []
    for name in names:
        reason = ""
        if name in by_call:
            reason = "other results with lines of its own"
        elif name in REWRITERS:
            try:
                own = REWRITERS[name](space, situation)
                if own:
                    _texts([*changes, *own], space)
                    changes += own
                    patch.forms[name] = _places(own, space)
                    continue
                reason = "nothing to change was found"
            except NoEdit as error:
                reason = str(error)
            except Exception as error:  # whatever a source is that nobody thought of
                reason = f"{type(error).__name__}: {error}"
        if name in NOT_HERE:
            patch.left_out[name] = reason
            continue
        called.append(name)
        patch.forms[name] = f"{BY_CALL}{f' ({reason})' if reason else ''}"
    if called:
        listed = ", ".join(f'"{name}"' for name in called)
        changes.append(TopLine("slipstream", f"slipstream.speed_up({listed})"))
    try:
        patch.after = _texts(changes, space)
    except NoEdit as error:
        for name in called:
            del patch.forms[name]
            patch.left_out[name] = str(error)
        patch.after = _texts(changes[:-1], space)
    patch.before = {path: space.source(path).text for path in patch.after}
    return patch


def _texts(changes: list[Edit | TopLine], space: Workspace) -> dict[Path, str]:
    lines = [change for change in changes if isinstance(change, TopLine)]
    edits = [change for change in changes if isinstance(change, Edit)]
    if lines:
        edits += top_edits(space.main(), lines)
    return {
        path: edited(space.source(path), [edit for edit in edits if edit.path == path])
        for path in {edit.path for edit in edits}
    }


def _places(changes: list[Edit | TopLine], space: Workspace) -> str:
    found = []
    for change in changes:
        if isinstance(change, TopLine):
            found.append(f"top of {space.main().path.name}")
        else:
            line = space.source(change.path).text.count("\n", 0, change.start) + 1
            found.append(f"{change.path.name}:{line}")
    return ", ".join(dict.fromkeys(found))
