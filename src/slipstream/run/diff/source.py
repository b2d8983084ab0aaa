"""A file of the user, and changes of single characters in it: all else stays as it is."""

import ast
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class NoEdit(Exception):
    """A change that cannot be made safely; the message says why."""


@dataclass(frozen=True)
class Edit:
    """Characters `start` to `end` of a file become `text`, whose lines end with a newline."""

    path: Path
    start: int
    end: int
    text: str


class Source:
    """A file with its tree. Raises `NoEdit` for one that is not plain Python in UTF-8."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.text = path.read_bytes().decode()
            self.tree = ast.parse(self.text)
        except (OSError, ValueError, SyntaxError) as error:
            raise NoEdit(f"{path.name} cannot be read ({type(error).__name__})") from None
        if "\r" in self.text.replace("\r\n", "") or "\f" in self.text or self.text[:1] == "\ufeff":
            raise NoEdit(f"{path.name} has unusual ends of lines")
        self.newline = "\r\n" if "\r\n" in self.text else "\n"
        self._lines = self.text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._parents = {
            child: parent
            for parent in ast.walk(self.tree)
            for child in ast.iter_child_nodes(parent)
        }

    def line(self, number: int) -> str:
        """Without its end."""
        return self._lines[number - 1].rstrip("\r")

    def line_start(self, number: int) -> int:
        """Offset of a line; that behind the last one is the end of the file."""
        return min(self._starts[number - 1], len(self.text))

    def line_end(self, number: int) -> int:
        """Offset behind its last character."""
        return self._starts[number - 1] + len(self.line(number))

    def start(self, node: Any) -> int:
        """Offset of its first character."""
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: Any) -> int:
        """Offset behind its last character."""
        return self._offset(node.end_lineno, node.end_col_offset)

    def text_of(self, node: Any) -> str:
        """As it is written."""
        return self.text[self.start(node) : self.end(node)]

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What it is part of."""
        return self._parents.get(node)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that it is part of."""
        found: ast.AST | None = node
        while found is not None and not isinstance(found, ast.stmt):
            found = self.parent(found)
        if found is None:
            raise NoEdit(f"no statement of {self.path.name} has it")
        return found

    def is_in_function(self, node: ast.AST) -> bool:
        """Whether it runs when a function is called, and not when the file is."""
        above = self.parent(node)
        while above is not None:
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return True
            above = self.parent(above)
        return False

    def indent(self, number: int) -> str:
        """White space before a line."""
        line = self.line(number)
        return line[: len(line) - len(line.lstrip())]

    def stands_alone(self, statement: ast.stmt) -> bool:
        """Whether its lines hold nothing else but a comment behind it."""
        before = self.text[self.line_start(statement.lineno) : self.start(statement)]
        end = statement.end_lineno or statement.lineno
        behind = self.text[self.end(statement) : self.line_end(end)].strip()
        return not before.strip() and (not behind or behind.startswith("#"))

    def tokens(self, start: int, end: int) -> list[tuple[int, int, str]]:
        """Of a stretch that begins and ends between tokens: start, end, text; without comments and
        ends of lines.
        """
        piece = self.text[start:end]
        starts = [0]
        for line in piece.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        found = []
        # In parentheses, so that indents within are none.
        for token in tokenize.generate_tokens(io.StringIO(f"({piece}\n)").readline):
            if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER):
                continue
            ends = [
                starts[row - 1] + column - (row == 1) for row, column in (token.start, token.end)
            ]
            found.append((start + ends[0], start + ends[1], token.string))
        return found[1:-1]

    def _offset(self, line: int, column: int) -> int:
        """Columns of a tree are bytes."""
        text = self._lines[line - 1]
        return self._starts[line - 1] + len(text.encode()[:column].decode())


def edited(source: Source, edits: Iterable[Edit]) -> str:
    """Its text with all of them. Raises `NoEdit` where two want the same characters, or where the
    result is no Python.
    """
    pieces, at = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if edit.start < at:
            raise NoEdit(f"two changes of {source.path.name} want the same place")
        pieces += [source.text[at : edit.start], edit.text.replace("\n", source.newline)]
        at = edit.end
    text = "".join([*pieces, source.text[at:]])
    try:
        compile(text, str(source.path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise NoEdit(f"{source.path.name} would be no Python any more: {error}") from None
    return text
