"""Puts TraceML's calls into a copy of a script, as its documentation asks of a plain loop."""

import ast
from pathlib import Path

_START = "import traceml_ai\ntraceml_ai.init(mode='auto')\n"


def with_trace_step(source: str) -> str:
    """The source with the body of the training loop inside `trace_step`; as it is without one."""
    tree = ast.parse(source)
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For) and _trains(n)]
    if not loops:
        return source
    loop = loops[-1]  # the innermost of those around the backward pass: the walk goes inwards
    model = "self.model" if "self.model(" in ast.unparse(loop) else "model"
    step = ast.parse(f"with traceml_ai.trace_step({model}): pass").body[0]
    assert isinstance(step, ast.With)
    step.body, loop.body = loop.body, [step]
    tree.body[:0] = ast.parse(_START).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _trains(loop: ast.For) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(loop))


def write_traced(files: list[Path], folder: Path) -> None:
    """Copies of the files, with its calls."""
    for file in files:
        (folder / file.name).write_text(with_trace_step(file.read_text()), encoding="utf-8")
