"""What the command line prints: tables for people, JSON for scripts, one red line for errors."""

from __future__ import annotations

import datetime
import json
import os
import sys
from typing import Any

import duckdb
from rich.console import Console
from rich.markup import escape
from rich.table import Table

# Wide enough for every table where there is no terminal to ask for its width.
_WIDTH_WITHOUT_TERMINAL = 132


def _open_closed_streams() -> None:
    """Standard output that was closed would become the next file to be opened: a volume, and printed upon."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


_open_closed_streams()
console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL)
error_console = Console(stderr=True, highlight=False)

Row = dict[str, Any]


def rows(connection: duckdb.DuckDBPyConnection, query: str, parameters: list[Any] | None = None) -> list[Row]:
    """A result as one dictionary per row."""
    cursor = connection.execute(query, parameters or [])
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def print_json(value: Any) -> None:
    def plain(item: Any) -> str:
        return item.isoformat() if isinstance(item, (datetime.datetime, datetime.date)) else str(item)

    print(json.dumps(value, indent=2, default=plain))


def print_error(message: str) -> None:
    error_console.print(f"[bold red]rawduck:[/] [red]{escape(message)}[/]", soft_wrap=True)


def size(count: float | None) -> str:
    """Bytes with a binary unit: 1.5 GiB."""
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} TiB"


def seconds(value: float) -> str:
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table; a column whose name starts with '>' is right-aligned."""
    result = Table(
        title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False
    )
    for column in columns:
        right = column.startswith(">")
        result.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold")
    return result


def fields(pairs: list[tuple[str, str]]) -> Table:
    """Names and values below one another."""
    result = Table(show_header=False, box=None, pad_edge=False)
    result.add_column(style="bold")
    result.add_column(overflow="fold")
    for name, value in pairs:
        result.add_row(name, escape(value))
    return result
