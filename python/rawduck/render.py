"""What the command line prints: tables for people, JSON for scripts, one red line for errors."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import sys
from typing import Any

import duckdb
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rawduck.errors import RawduckError

# Wide enough for every table where there is no terminal to ask for its width.
_WIDTH_WITHOUT_TERMINAL = 132


def _open_closed_streams() -> None:
    """Standard output that was closed would become the next file to be opened: a volume, and printed upon."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _print_whatever_it_is() -> None:
    """Names and units in a locale that lacks their characters, too."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


_open_closed_streams()
_print_whatever_it_is()


class _Console(Console):
    discarded = False

    def on_broken_pipe(self) -> None:
        discard_output()


def discard_output() -> None:
    """Nobody reads what is printed any more (`rawduck ls | head -1`). What a command does, and its exit code,
    stay as they are."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _Console.discarded = True


def somebody_reads() -> bool:
    """For commands that print until they are ended."""
    return not _Console.discarded


# Without emoji: names may contain what rich takes for one, such as ":a:".
console = _Console(
    highlight=False, emoji=False, width=None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
)
error_console = Console(stderr=True, highlight=False, emoji=False)

Row = dict[str, Any]


class Rows(list[Row]):
    """A result as one dictionary per row, and the names of its columns where it has none."""

    def __init__(self, names: list[str], values: list[tuple]) -> None:
        super().__init__(dict(zip(names, row, strict=True)) for row in values)
        self.names = names


def rows(connection: duckdb.DuckDBPyConnection, query: str, parameters: list[Any] | None = None) -> Rows:
    cursor = connection.execute(query, parameters or [])
    return Rows([column[0] for column in cursor.description], cursor.fetchall())


def require_one_format(as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise RawduckError("--json and --csv: one of the two")


def print_for_scripts(found: Rows, as_json: bool, as_csv: bool) -> bool:
    """Prints a listing where a script wants it. Whether it did."""
    require_one_format(as_json, as_csv)
    if as_json:
        print_json(found)
    if as_csv:
        _print_csv(found)
    return as_json or as_csv


def _print_csv(found: Rows) -> None:
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(found.names)
    for row in found:
        writer.writerow(_csv_cell(value) for value in row.values())
    print_line(output.getvalue().rstrip("\n"))


def _csv_cell(value: Any) -> Any:
    return json.dumps(value, default=_plain) if isinstance(value, (list, dict, bool)) else _plain_time(value)


def _plain(item: Any) -> str:
    return str(_plain_time(item))


def _plain_time(item: Any) -> Any:
    return item.isoformat() if isinstance(item, (datetime.datetime, datetime.date)) else item


def print_json(value: Any) -> None:
    print_line(json.dumps(value, indent=2, default=_plain))


def print_json_line(value: Any) -> None:
    """One of several, each on a line of its own."""
    print_line(json.dumps(value, default=_plain))


def print_line(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard_output()


def printable(text: str) -> str:
    """A name or message as one line that cannot command a terminal: what is not printed is escaped."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


def text(value: str) -> str:
    """The same for a table or a line with markup."""
    return escape(printable(value))


def print_error(message: str) -> None:
    error_console.print(f"[bold red]rawduck:[/] [red]{text(message)}[/]", soft_wrap=True)


def print_note(message: str) -> None:
    """On standard error, beside what the command prints."""
    error_console.print(text(message), soft_wrap=True)


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
        result.add_row(name, text(value))
    return result
