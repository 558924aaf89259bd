"""Whether a result is what a sqllogictest expects."""

from __future__ import annotations

import hashlib
import re

_NUMBERS = ("INT", "DECIMAL", "FLOAT", "DOUBLE")
_HASH = re.compile(r"\d+ values hashing to [0-9a-f]{32}")


def error_matches(message: str, expected: list[str]) -> bool:
    """An expected error is a part of the message, or a pattern for all of it."""
    wanted = "\n".join(expected).strip()
    if wanted.startswith("<REGEX>:"):
        return re.fullmatch(wanted[len("<REGEX>:") :], message, re.DOTALL) is not None
    if wanted.startswith("<!REGEX>:"):
        return re.fullmatch(wanted[len("<!REGEX>:") :], message, re.DOTALL) is None
    return wanted in message


def digest(rows: list[tuple[str, ...]]) -> str:
    values = [value for row in rows for value in row]
    md5 = hashlib.md5("".join(f"{value}\n" for value in values).encode(errors="surrogateescape"))
    return f"{len(values)} values hashing to {md5.hexdigest()}"


def sort(rows: list[tuple[str, ...]], how: str) -> list[tuple[str, ...]]:
    if how in ("rowsort", "sort"):
        return sorted(rows)
    if how == "valuesort":
        return [(value,) for value in sorted(value for row in rows for value in row)]
    return rows


def difference(rows: list[tuple[str, ...]], types: list[str], expected: list[str]) -> str:
    """What differs; empty when the rows are as expected."""
    if len(expected) == 1 and _HASH.fullmatch(expected[0]):
        found = digest(rows)
        return "" if found == expected[0] else f"found {found}, expected {expected[0]}"
    columns = len(types)
    if (columns > 1 and len(expected) == len(rows)) or any("\t" in line for line in expected):
        wanted = [line.split("\t") for line in expected]
    elif len(expected) % max(columns, 1) == 0:
        wanted = [expected[i : i + columns] for i in range(0, len(expected), columns)]
    else:
        return f"{len(expected)} expected values do not fill rows of {columns}"
    if len(wanted) != len(rows):
        return f"found {len(rows)} rows, expected {len(wanted)}: {rows[:3]}"
    for number, (row, line) in enumerate(zip(rows, wanted, strict=True), 1):
        cells = [cell for cell in line if cell != ""] if len(line) != len(row) else line
        if len(cells) != len(row):
            return f"row {number} has {len(row)} columns, expected {len(cells)}"
        for column, (value, cell) in enumerate(zip(row, cells, strict=True)):
            if not _same(value, cell, types[column % columns]):
                return f"row {number}, column {column + 1}: found {value!r}, expected {cell!r}"
    return ""


def _same(found: str, expected: str, type_name: str) -> bool:
    if found == expected:
        return True
    if expected.startswith(("<REGEX>:", "<!REGEX>:")):
        return error_matches(found, [expected])
    if type_name == "BOOLEAN":
        return {"0": "false", "1": "true"}.get(expected, expected.lower()) == found
    if any(name in type_name for name in _NUMBERS) and "NULL" not in (found, expected):
        try:
            left, right = float(found), float(expected)
        except ValueError:
            return False
        return left == right or abs(left - right) <= abs(right) * 0.01 + 1e-8
    return False
