"""A folder of pictures with a CSV file of labels."""

import csv
import math
import re
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError
from slipstream.pack.sources.folder import Entry, PictureFiles, scan_pictures
from slipstream.store.schema import Field, is_field_name

Rows = list[list[str]]
_TAKEN = frozenset({"image", "key"})
_INT_LIMIT = 1 << 63


def open_labelled_folder(folder: Path, labels: Path) -> PictureFiles:
    """Pictures in the order of the CSV's rows; its columns become fields.

    The first column is the file name, relative to `folder`, with or without suffix. A heading row
    is optional. Columns are integers, floats or text by what they hold; a text column called
    `label`, or the only text column, becomes the integer field `label` with classes.
    """
    rows = _read_rows(labels)
    entries, _ = scan_pictures(folder)
    by_name = _by_name(entries)
    names = _take_heading(rows, by_name)
    columns = [[row[k] for row in rows] for k in range(1, len(names) + 1)]
    classed = _class_column(names, columns)
    fields, values, classes = _type_columns(names, columns, classed)
    row_values = zip(*values, strict=True) if values else [()] * len(rows)
    listed = [
        _find(row[0], found, by_name, folder) for row, found in zip(rows, row_values, strict=True)
    ]
    left = len(entries) - len({entry.key for entry in listed} & {entry.key for entry in entries})
    remarks = [f"pictures that {labels.name} does not name were left aside: {left}"] if left else []
    return PictureFiles("folder and labels", listed, tuple(fields), classes, remarks)


def _read_rows(labels: Path) -> Rows:
    try:
        with labels.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except OSError as error:
        raise UsageError(f"Cannot read {labels}: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{labels} is not a CSV file in UTF-8: {error}.") from None
    if not rows:
        raise UsageError(f"{labels} is empty. Expected rows: file name, label, ….")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise UsageError(
                f"{labels}, row {number}: {len(row)} columns, the first row has {len(rows[0])}."
            )
    return rows


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


def _take_heading(rows: Rows, by_name: dict[str, Entry]) -> list[str]:
    """Field names of the columns behind the first; removes the heading from `rows` if there is
    one.
    """
    width = len(rows[0]) - 1
    has_heading = rows[0][0] not in by_name and len(rows) > 1
    if not has_heading:
        return ["label"] if width == 1 else [f"column{k}" for k in range(1, width + 1)]
    names: list[str] = []
    for k, given in enumerate(rows.pop(0)[1:], start=1):
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", given.strip())[:64]
        if not is_field_name(name):
            name = f"column{k}"
        while name in names or name in _TAKEN:
            name += "_"
        names.append(name)
    return names


def _class_column(names: list[str], columns: list[list[str]]) -> int | None:
    texts = [k for k, column in enumerate(columns) if _column_kind(column) == "text"]
    for k in texts:
        if names[k] == "label":
            return k
    return texts[0] if len(texts) == 1 and "label" not in names else None


def _type_columns(
    names: list[str], columns: list[list[str]], classed: int | None
) -> tuple[list[Field], list[list[Any]], tuple[str, ...] | None]:
    fields: list[Field] = []
    values: list[list[Any]] = []
    classes = None
    for k, (name, column) in enumerate(zip(names, columns, strict=True)):
        kind = _column_kind(column)
        if k == classed:
            classes = tuple(sorted(set(column)))
            numbers = {text: number for number, text in enumerate(classes)}
            fields.append(Field("label", "int"))
            values.append([numbers[text] for text in column])
        elif kind == "int":
            fields.append(Field(name, "int"))
            values.append([int(text) for text in column])
        elif kind == "float":
            fields.append(Field(name, "float"))
            values.append([float(text) if text.strip() else math.nan for text in column])
        else:
            fields.append(Field(name, "text"))
            values.append(list(column))
    return fields, values, classes


def _column_kind(column: list[str]) -> str:
    """`int`, `float` or `text`. Empty cells make numbers floats: they are stored as NaN."""
    filled = [text for text in column if text.strip()]
    if not filled:
        return "text"
    try:
        if len(filled) == len(column) and all(-_INT_LIMIT <= int(t) < _INT_LIMIT for t in filled):
            return "int"
    except ValueError:
        pass
    try:
        for text in filled:
            float(text)
    except ValueError:
        return "text"
    return "float"


def _find(name: str, values: tuple[Any, ...], by_name: dict[str, Entry], folder: Path) -> Entry:
    found = by_name.get(name)
    if found is None:
        # Reading it will fail, and is reported as this item's error.
        return Entry(str(folder / name), name, values)
    return Entry(found.path, found.key, values, found.file_bytes, found.changed_ns)
