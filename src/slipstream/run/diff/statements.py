"""Whole statements: put under a line of their own, or behind one."""

import ast

from slipstream.run.diff.source import Edit, NoEdit, Source


def wrapped(source: Source, statement: ast.stmt, opening: str) -> Edit:
    """It, one level deeper, under an opening line such as `with x:`."""
    where = f"{source.path.name}:{statement.lineno}"
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr):
        raise NoEdit(f"the statement at {where} cannot be put under another line")
    if not source.stands_alone(statement):
        raise NoEdit(f"{where} has more than one statement")
    for node in ast.walk(statement):
        is_text = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        )
        if is_text and node.lineno != node.end_lineno:  # type: ignore[attr-defined]
            raise NoEdit(f"{where} holds a text of several lines")
    last = statement.end_lineno or statement.lineno
    own = source.indent(statement.lineno)
    step = "\t" if own.startswith("\t") else "    "
    lines = [source.line(number) for number in range(statement.lineno, last + 1)]
    deeper = [f"{step}{line}" if line.strip() else line for line in lines]
    text = "\n".join([f"{own}{opening}", *deeper])
    return Edit(source.path, source.line_start(statement.lineno), source.line_end(last), text)


def added_before(source: Source, statement: ast.stmt, line: str) -> Edit:
    """A line before it."""
    if not source.stands_alone(statement):
        raise NoEdit(f"{source.path.name}:{statement.lineno} has more than one statement")
    at = source.line_start(statement.lineno)
    return Edit(source.path, at, at, f"{source.indent(statement.lineno)}{line}\n")
