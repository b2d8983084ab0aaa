"""A folder of pictures with a CSV file of labels."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from slipstream.errors import UsageError
from slipstream.pack.sources.folder import PICTURE_SUFFIXES, Entry, PictureFiles, scan_pictures
from slipstream.store.schema import Field, is_field_name

_TAKEN = frozenset({"image", "key"})
_INT_LIMIT = 1 << 63
_INT = re.compile(r"[+-]?\d+")
_PADDED_INT = re.compile(r"[+-]?0\d+")
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NOT_FINITE = frozenset({"nan", "inf", "+inf", "-inf"})


@dataclass
class Table:
    """The rows of a CSV file with their numbers in it, and the names of the columns behind the
    first.
    """

    name: str
    rows: list[list[str]]
    numbers: list[int]
    names: list[str]

    def column(self, k: int) -> list[str]:
        """The cells of a column behind the first."""
        return [row[k + 1] for row in self.rows]

    def where(self, place: int) -> str:
        """File and row, for messages."""
        return f"{self.name}, row {self.numbers[place]}"


def open_labelled_folder(folder: Path, labels: Path) -> PictureFiles:
    """Pictures in the order of the CSV's rows; its columns become fields.

    The first column is the file name, relative to `folder`, with or without suffix. A heading row
    is optional. Columns are integers, floats or text by what they hold; a text column called
    `label`, or the only text column, becomes the integer field `label` with classes. Raises
    `UsageError` for a column that is neither.
    """
    table = _read_table(labels)
    entries, _ = scan_pictures(folder)
    by_name = _by_name(entries)
    _take_heading(table, by_name, folder)
    fields, values, classes = _type_columns(table)
    row_values = zip(*values, strict=True) if values else [()] * len(table.rows)
    listed = [_find(table, place, found, by_name, folder) for place, found in enumerate(row_values)]
    left = len(entries) - len({entry.key for entry in listed} & {entry.key for entry in entries})
    remarks = [f"pictures that {labels.name} does not name were left aside: {left}"] if left else []
    return PictureFiles("folder and labels", listed, tuple(fields), classes, remarks)


def _read_table(labels: Path) -> Table:
    try:
        with labels.open(newline="", encoding="utf-8-sig") as file:
            found = [(n, row) for n, row in enumerate(csv.reader(file), start=1) if row]
    except OSError as error:
        raise UsageError(f"Cannot read {labels}: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{labels} is not a CSV file in UTF-8: {error}.") from None
    if not found:
        raise UsageError(f"{labels} is empty. Expected rows: file name, label, ….")
    table = Table(labels.name, [row for _, row in found], [n for n, _ in found], [])
    width = len(table.rows[0])
    if width == 1 and ";" in table.rows[0][0]:
        raise UsageError(
            f"{labels} has one column, with ';' in it. Save it with ',' between the columns."
        )
    for place, row in enumerate(table.rows):
        if len(row) != width:
            raise UsageError(
                f"{table.where(place)}: {len(row)} columns, the first row has {width}."
            )
    return table


def _by_name(entries: list[Entry]) -> dict[str, Entry]:
    """Entries by key, and by key without suffix where only one has it."""
    names: dict[str, Entry] = {}
    stems: dict[str, list[Entry]] = {}
    for entry in entries:
        names[entry.key] = entry
        stems.setdefault(str(Path(entry.key).with_suffix("")), []).append(entry)
    for stem, found in stems.items():
        if len(found) == 1:
            names.setdefault(stem, found[0])
    return names


def _take_heading(table: Table, by_name: dict[str, Entry], folder: Path) -> None:
    """Name the columns; removes the heading from the rows if there is one."""
    first = table.rows[0]
    is_file = str(PurePosixPath(first[0])) in by_name
    if is_file or PurePosixPath(first[0]).suffix.lower() in PICTURE_SUFFIXES:
        width = len(first) - 1
        table.names = ["label"] if width == 1 else [f"column{k}" for k in range(1, width + 1)]
        return
    if len(table.rows) == 1:
        raise UsageError(
            f"{table.name} has one row, and {first[0]!r} is no picture in {folder}."
            " Expected rows below the heading: file name, label, …."
        )
    del table.rows[0], table.numbers[0]
    for k, given in enumerate(first[1:], start=1):
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", given.strip())[:64]
        if not is_field_name(name):
            name = f"column{k}"
        if name in _TAKEN:
            raise UsageError(
                f"{table.name}: a column is called {name!r}, which is the name of a field that"
                " every picture has. Rename the column."
            )
        if name in table.names:
            raise UsageError(f"{table.name}: two columns are called {name!r}. Rename one.")
        table.names.append(name)


def _type_columns(table: Table) -> tuple[list[Field], list[list[Any]], tuple[str, ...] | None]:
    kinds = [_column_kind(table, k) for k in range(len(table.names))]
    classed = _class_column(table.names, kinds)
    fields: list[Field] = []
    values: list[list[Any]] = []
    classes = None
    for k, (name, kind) in enumerate(zip(table.names, kinds, strict=True)):
        column = table.column(k)
        if k == classed or kind != "text":
            _refuse_empty(table, k)
        if k == classed:
            classes = tuple(sorted(set(column)))
            numbers = {text: number for number, text in enumerate(classes)}
            fields.append(Field("label", "int"))
            values.append([numbers[text] for text in column])
        else:
            fields.append(Field(name, kind))
            convert = {"int": int, "float": float, "text": str}[kind]
            values.append([convert(text) for text in column])
    return fields, values, classes


def _class_column(names: list[str], kinds: list[str]) -> int | None:
    texts = [k for k, kind in enumerate(kinds) if kind == "text"]
    for k in texts:
        if names[k] == "label":
            return k
    return texts[0] if len(texts) == 1 and "label" not in names else None


def _column_kind(table: Table, k: int) -> str:
    """`int`, `float` or `text`. Raises `UsageError` where most cells are numbers and some are not.

    Integers with leading zeros or beyond 64 bits are names, and make their column text.
    """
    cells = [text.strip() for text in table.column(k)]
    filled = [cell for cell in cells if cell]
    if any(_is_name_of_digits(cell) for cell in filled):
        return "text"
    numbers = sum(_FLOAT.fullmatch(cell) is not None for cell in filled)
    if numbers == 0 or 2 * numbers < len(filled):
        return "text"
    for place, cell in enumerate(cells):
        if cell and _FLOAT.fullmatch(cell) is None and cell.lower() not in _NOT_FINITE:
            raise UsageError(
                f"{table.where(place)}, column {table.names[k]}: {cell!r} is not a number, as in"
                " most rows. Correct it; or, if the column is text, put a letter before the"
                " numbers."
            )
    return "int" if all(_INT.fullmatch(cell) for cell in filled) else "float"


def _is_name_of_digits(cell: str) -> bool:
    if _INT.fullmatch(cell) is None:
        return False
    is_long = len(cell) > len(str(_INT_LIMIT)) or not -_INT_LIMIT <= int(cell) < _INT_LIMIT
    return is_long or _PADDED_INT.fullmatch(cell) is not None


def _refuse_empty(table: Table, k: int) -> None:
    for place, text in enumerate(table.column(k)):
        if not text.strip():
            raise UsageError(
                f"{table.where(place)}, column {table.names[k]}: the cell is empty."
                " Fill it in, or remove the row."
            )


def _find(
    table: Table, place: int, values: tuple[Any, ...], by_name: dict[str, Entry], folder: Path
) -> Entry:
    given = table.rows[place][0]
    path = PurePosixPath(given)
    name = str(path)
    if not given.strip():
        raise UsageError(f"{table.where(place)}: the file name is empty.")
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(
            f"{table.where(place)}: {given!r} leads out of the folder."
            f" Name files relative to {folder}."
        )
    found = by_name.get(name)
    if found is None:
        # Reading it will fail, and is reported as this item's error.
        return Entry(str(folder / name), name, values, named_by=table.where(place))
    return Entry(found.path, found.key, values, found.file_bytes, found.changed_ns)
