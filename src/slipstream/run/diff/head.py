"""Lines at the top of a script: before it loads anything, or behind its imports."""

import ast
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

from slipstream.run.diff.source import Edit, Source


@dataclass(frozen=True)
class TopLine:
    """A line, and the module that it needs. `is_first`: before anything is loaded."""

    module: str
    text: str
    is_first: bool = False


def top_edits(source: Source, lines: Iterable[TopLine]) -> list[Edit]:
    """The changes that put them there."""
    lines = list(lines)
    first = [line for line in lines if line.is_first]
    others = [line for line in lines if not line.is_first]
    edits = []
    if first:
        head = _before_packages(source.tree, {line.module for line in first})
        edit = _inserted(source, _line_behind(source, head), first, _bound(head))
        # One empty line is there already where nothing is imported.
        starts = head and not edit.text.startswith("\n")
        edits.append(replace(edit, text=f"\n{edit.text}") if starts else edit)
    if others:
        imports = leading_imports(source.tree)
        edits.append(_inserted(source, _line_behind(source, imports), others, _bound(imports)))
    return edits


def leading_imports(tree: ast.Module) -> list[ast.stmt]:
    """Statements from the start of a module to the last import that comes before its own code, or
    before what stands behind the import of torch: variables that torch is loaded with come first.
    """
    end, torch = 0, next((k for k, node in enumerate(tree.body) if _loads_torch(node)), -1)
    for number, node in enumerate(tree.body):
        if _is_import(node):
            end = number + 1
        elif number > torch and not (_must_be_first(node, number) or _is_setting(node)):
            break
    return tree.body[:end] or [n for n in tree.body[:1] if _must_be_first(n, 0)]


def _loads_torch(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return not node.level and (node.module or "").partition(".")[0] == "torch"
    names = node.names if isinstance(node, ast.Import) else []
    return any(name.name.partition(".")[0] == "torch" for name in names)


def _before_packages(tree: ast.Module, needed: set[str]) -> list[ast.stmt]:
    """What lines go behind that come before anything is loaded: modules of Python itself may be,
    where they are all that is `needed`.
    """
    own = []
    for number, node in enumerate(tree.body):
        if not (_must_be_first(node, number) or _is_pythons_own(node)):
            break
        own.append(node)
    if needed <= _bound(own):
        return own
    return [node for number, node in enumerate(own) if _must_be_first(node, number)]


def _is_pythons_own(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""] if not node.level else [""]
    else:
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else [""]
    return all(name.partition(".")[0] in sys.stdlib_module_names for name in names)


def imports_at_top(tree: ast.Module, module: str) -> bool:
    """Whether a module has its own name in all of a file."""
    return module in _bound(tree.body)


def _must_be_first(node: ast.stmt, number: int) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text and number == 0


def _is_import(node: ast.stmt) -> bool:
    if isinstance(node, ast.Try):
        return all(_is_import(part) for part in node.body)
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_setting(node: ast.stmt) -> bool:
    """Such as os.environ["X"] = "1", matplotlib.use("Agg")."""
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _line_behind(source: Source, statements: list[ast.stmt]) -> int:
    """Number of the line before which new ones go."""
    if statements:
        return (statements[-1].end_lineno or 0) + 1
    number = 1
    while source.text and source.line(number).startswith("#"):
        number += 1  # what the system and editors look for
    return number


def _bound(imports: list[ast.stmt]) -> set[str]:
    """Modules that have their own names there.

    >>> sorted(_bound(ast.parse("import torch.nn\\nimport numpy as np").body))
    ['torch']
    """
    return {
        name.name.partition(".")[0]
        for node in imports
        if isinstance(node, ast.Import)
        for name in node.names
        if name.asname is None
    }


def _inserted(source: Source, number: int, lines: list[TopLine], bound: set[str]) -> Edit:
    missing = sorted({line.module for line in lines} - bound)
    imports = "".join(f"import {module}\n" for module in missing)
    body = "".join(f"{line.text}\n" for line in lines)
    text = f"{imports}\n{body}"
    at = source.line_start(number)
    if at and source.text[at - 1] != "\n":
        text = "\n" + text.removesuffix("\n")  # behind a last line without an end
    elif at < len(source.text) and source.line(number).strip():
        text += "\n"
    return Edit(source.path, at, at, text)
