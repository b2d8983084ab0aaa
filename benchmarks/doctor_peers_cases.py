"""What is wrong with each script that the doctor and its peers are given, and where."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.doctor.scripts import SCRIPTS, truth_of

HELPER = "training.py"  # what the scripts share: the user's own code, too


@dataclass(frozen=True)
class Case:
    """A sick script. A place is text of a line; where it ends in a colon, the block that the line
    opens counts as well. Both the line to change and the one that the time goes to are right.
    """

    name: str
    family: str  # what a tool that knows only kinds of trouble should say: input, residual, compute
    places: tuple[str, ...] = ()
    in_worker: tuple[str, ...] = ()  # the code of the fault that runs in a worker

    @property
    def path(self) -> Path:
        """The script."""
        return SCRIPTS / f"{self.name}_sick.py"

    @property
    def rule(self) -> str:
        """Of the doctor, for its fault."""
        rule = truth_of(self.path).rule
        assert rule is not None
        return rule

    def right_lines(self) -> set[tuple[str, int]]:
        """File and number of every line that a tool may name."""
        at = truth_of(self.path).at
        texts = (*self.places, *self.in_worker, *((at,) if at and not self.in_worker else ()))
        return _lines_with(self._files(), texts)

    def worker_lines(self) -> set[tuple[str, int]]:
        """Those that run in workers."""
        return _lines_with(self._files(), self.in_worker)

    def _files(self) -> list[Path]:
        uses_helper = "from training import" in self.path.read_text()
        return [self.path, SCRIPTS / HELPER] if uses_helper else [self.path]


CASES = (
    Case("no_workers", "input", ("def __getitem__(self, index):", "for x, _ in loader")),
    Case(
        "too_few_workers",
        "input",
        ("DataLoader(", "for x, _ in loader"),
        ("def __getitem__(self, index):",),
    ),
    # `def __call__` is there three times, and only one of them is slow.
    Case("slow_transform", "input", ("Denoise(3.0)",), ("class Denoise:", "def work(ms):")),
    Case("slow_collate", "input", (), ("def pad(samples):",)),
    Case("reopened_files", "input", (), ("def __getitem__(self, index):",)),
    Case(
        "heavy_augmentation",
        "input",
        (),
        (
            "def jitter(x):",
            "def noise(x):",
            "def shift(x):",
            "def work(ms):",
            "for transform in self.transforms:",
        ),
    ),
    Case("workers_restarted", "input", ("for x, _ in loader", "training.epoch(loader)")),
    Case("for_loop_optimizer", "compute", ("optimizer.step()",)),
    Case("python_in_loop", "residual", ("def work_for(seconds):",)),
    Case(
        "parameter_loop",
        "residual",
        ("for kept, new in zip(average.parameters(), model.parameters(), strict=True):",),
    ),
    Case("frequent_checkpoint", "residual"),
    Case("eval_with_grad", "residual", ("for x, y in validation:",)),
    Case("sleep_in_loop", "residual"),
)


def _lines_with(files: Iterable[Path], texts: Iterable[str]) -> set[tuple[str, int]]:
    texts = tuple(texts)
    found = set()
    for file in files:
        source = file.read_text()
        for number, line in enumerate(source.splitlines(), start=1):
            for text in texts:
                if text in line and not line.startswith("# truth:"):
                    last = _end_of_block(source, number) if text.endswith(":") else number
                    found |= {(file.name, n) for n in range(number, last + 1)}
    return found


def _end_of_block(source: str, number: int) -> int:
    blocks = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt))
    return max(
        (node.end_lineno or number for node in blocks if node.lineno == number), default=number
    )
