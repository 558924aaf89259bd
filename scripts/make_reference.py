#!/usr/bin/env python3
"""Writes docs/REFERENCE.md from what the extensions register with DuckDB: `make reference`.

`make_reference.py --check core` (or ceph) prints how that part of the page and the code differ, and exits
with 1 when they do. Where Ceph's extension was not built, its part of the page stays as it is.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from pathlib import Path
from typing import Any

import duckdb
import rawduck

PAGE = Path(__file__).resolve().parents[1] / "docs" / "REFERENCE.md"
GPU_HEADING = "## Tables on the GPU\n\nSee [Tables on the GPU](GPU.md).\n"
CEPH_HEADING = "## Ceph: `rados://`\n"

INTRODUCTION = """# Reference

Every setting and SQL function of rawduck. `make reference` makes this page from what the extension
registers with DuckDB, and a test compares the two. SQL has the same, with the descriptions of columns
and the defaults of parameters in `tags`:

```sql
SELECT name, value, description FROM duckdb_settings() WHERE name LIKE 'nvme%';
SELECT function_name, description, parameters, examples, tags
FROM duckdb_functions() WHERE function_name LIKE 'nvme%';
```

A target is the path of a block device, of an NVMe namespace (`/dev/nvme0n1` or `/dev/ng0n1`) or of a
regular file, or `memory:<name>`, also with `nvme://` before it. A file on it is
`nvme://<target>/<file>`; see [devices and engines](devices.md).

"""


def rows(connection: duckdb.DuckDBPyConnection, query: str, *parameters: Any) -> list[dict[str, Any]]:
    cursor = connection.execute(query, list(parameters))
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def cell(text: str) -> str:
    """As the cell of a table, in which neither a tag nor a line may begin."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def settings(connection: duckdb.DuckDBPyConnection, prefix: str) -> list[str]:
    query = "SELECT * FROM duckdb_settings() WHERE starts_with(name, ?) ORDER BY name"
    lines = ["| setting | type | default | |", "|---|---|---|---|"]
    for setting in rows(connection, query, prefix):
        default = f"`{setting['value']}`"
        lines.append(
            f"| `{setting['name']}` | {setting['input_type']} | {default} | {cell(setting['description'])} |"
        )
    return [*lines, ""]


def signature(function: dict[str, Any]) -> str:
    parameters = []
    for name, kind in zip(function["parameters"], function["parameter_types"], strict=True):
        default = function["tags"].get(f"default.{name}")
        parameters.append(f"{name} {kind}" + (f" := {default}" if default is not None else ""))
    return f"{function['function_name']}({', '.join(parameters)})"


def columns(connection: duckdb.DuckDBPyConnection, function: dict[str, Any]) -> list[str]:
    """Binding a call says what the columns are; nothing is run."""
    positional = [name for name in function["parameters"] if f"default.{name}" not in function["tags"]]
    call = f"{function['function_name']}({', '.join(repr(name) for name in positional)})"
    lines = []
    for column in rows(connection, f"DESCRIBE FROM {call}"):
        description = cell(function["tags"].get(f"column.{column['column_name']}", ""))
        lines.append(f"| `{column['column_name']}` | {column['column_type']} | {description} |")
    return ["| column | type | |", "|---|---|---|", *lines, ""]


def functions(connection: duckdb.DuckDBPyConnection, prefix: str) -> list[str]:
    query = "SELECT * FROM duckdb_functions() WHERE starts_with(function_name, ?) ORDER BY function_name"
    lines: list[str] = []
    tables: dict[str, str] = {}  #: which function has them
    for function in rows(connection, query, prefix):
        lines += [f"#### `{signature(function)}`", "", function["description"], ""]
        lines += ["```sql", *(example + ";" for example in function["examples"]), "```", ""]
        table = columns(connection, function)
        same = tables.setdefault("\n".join(table), function["function_name"])
        is_new = same == function["function_name"]
        lines += table if is_new else [f"The columns are those of `{same}()`.", ""]
    return lines


def part(connection: duckdb.DuckDBPyConnection, prefix: str) -> str:
    lines = ["### Settings", "", *settings(connection, prefix)]
    return "\n".join([*lines, "### Functions", "", *functions(connection, prefix)])


def core() -> str:
    with rawduck.connect() as connection:
        heading = "## Volumes and files: `nvme://` and `direct://`\n\n"
        gpu = "\n".join([GPU_HEADING, *functions(connection, "gpu_")])
        return INTRODUCTION + heading + part(connection, "nvme_") + "\n" + gpu + "\n"


def ceph() -> str:
    with rawduck.connect(ceph=True) as connection:
        return f"{CEPH_HEADING}\n{part(connection, 'rados_')}"


def parts_of_page() -> dict[str, str]:
    text = PAGE.read_text() if PAGE.exists() else ""
    before, heading, after = text.partition(CEPH_HEADING)
    return {"core": before, "ceph": heading + after}


def ceph_is_built() -> bool:
    try:
        rawduck.extension_path(ceph=True)
    except rawduck.RawduckError:
        return False
    return True


def check(name: str) -> int:
    is_there, wanted = parts_of_page()[name], {"core": core, "ceph": ceph}[name]()
    difference = difflib.unified_diff(
        is_there.splitlines(), wanted.splitlines(), "the page", "the code", lineterm=""
    )
    print("\n".join(difference))
    if is_there != wanted:
        print("docs/REFERENCE.md differs from the code; run: make reference", file=sys.stderr)
    return int(is_there != wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", choices=["core", "ceph"])
    wanted = parser.parse_args().check
    os.environ.pop("RAWDUCK_TEST_FUNCTIONS", None)  # the page has what users have
    if wanted:
        return check(wanted)
    if not ceph_is_built():
        print("make_reference.py: built without Ceph; its part of the page stays as it is", file=sys.stderr)
    PAGE.write_text(core() + (ceph() if ceph_is_built() else parts_of_page()["ceph"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
