"""`rawduck cp`: DuckDB files between ordinary file systems and volumes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Annotated

import duckdb
import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

import rawduck
from rawduck import paths, render
from rawduck.commands import names
from rawduck.commands.options import Json

_POLL_SECONDS = 0.1
# Between two lines where there is no terminal that a bar could move on.
_LINE_SECONDS = 10.0


def register(app: typer.Typer) -> None:
    epilog = "Example: rawduck cp sales.duckdb nvme:///data/disk.rawduck/sales.duckdb"
    app.command("cp", epilog=epilog)(copy)


def copy(
    path: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE... DESTINATION",
            help="Files, or nvme://<target>/<file>; sources on volumes may be quoted patterns. A destination "
            "that is a directory, ends with a slash or is nvme://<target>/ keeps the names.",
            show_default=False,
        ),
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a destination that exists.")
    ] = False,
    json: Json = False,
) -> None:
    """Copy files onto a volume, off it, or between volumes, byte for byte."""
    given, destination = names.sources_and_destination(path)
    destination = _absolute(destination)
    copied: list[render.Row] = []
    with rawduck.connect() as connection, _progress_bar() as progress:
        sources = names.matching(connection, [_absolute(source) for source in given])
        into = destination.endswith("/") or _is_folder(destination)
        names.require_folder(sources, into, destination)
        try:
            for source in sources:
                target = names.with_name(destination, source) if into else destination
                copied.append(_copy_shown(connection, source, target, overwrite, progress, not json))
        finally:  # what was done before something failed
            if json:
                render.print_json(copied)


def _copy_shown(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    destination: str,
    overwrite: bool,
    progress: Progress,
    for_people: bool,
) -> render.Row:
    start = time.perf_counter()
    total = _source_size(connection, source)
    task = progress.add_task(render.printable(PurePosixPath(source).name), total=total)
    show = _Shown(progress, task, total) if total else None
    copied = copy_file(connection, source, destination, overwrite, show)
    progress.remove_task(task)
    if for_people:
        took = render.seconds(time.perf_counter() - start)
        render.console.print(
            f"Copied {render.size(copied)} to {render.printable(destination)} in {took}",
            soft_wrap=True,
            markup=False,
        )
    return {"destination": destination, "bytes": copied}


class _Shown:
    """Moves the bar of one file, or prints a line now and then where there is no terminal."""

    def __init__(self, progress: Progress, task: TaskID, total: int) -> None:
        self._progress, self._task, self._total = progress, task, total
        self._line_at = time.monotonic() + _LINE_SECONDS

    def __call__(self, percent: float) -> None:
        done = self._total * percent / 100
        self._progress.update(self._task, completed=done)
        if self._progress.disable and time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + _LINE_SECONDS
            render.print_note(f"cp: {render.size(done)} of {render.size(self._total)}")


def copy_file(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    destination: str,
    overwrite: bool,
    show: Callable[[float], None] | None,
) -> int:
    """Runs nvme_copy on a thread and shows what DuckDB reports as done. Returns bytes copied."""
    query = "SELECT bytes FROM nvme_copy(?, ?, overwrite := ?)"
    connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            lambda: connection.execute(query, [source, destination, overwrite]).fetchone()[0]
        )
        try:
            while not _finished(running):
                percent = connection.query_progress()
                if show and percent > 0:
                    show(percent)
        except KeyboardInterrupt:
            connection.interrupt()
            raise
        return running.result()


def _finished(running: concurrent.futures.Future) -> bool:
    concurrent.futures.wait([running], timeout=_POLL_SECONDS)
    return running.done()


def _progress_bar() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=render.error_console,
        transient=True,
        disable=not render.error_console.is_terminal,
    )


def _absolute(path: str) -> str:
    return path if paths.has_scheme(path) else os.path.abspath(path) + ("/" if path.endswith("/") else "")


def _is_folder(path: str) -> bool:
    if not paths.is_volume_path(path):
        return not paths.has_scheme(path) and Path(path).is_dir()
    target = path[len(paths.VOLUME_SCHEME) :]
    if target.startswith(paths.MEMORY_PREFIX):
        return "/" not in target
    return Path(target).exists() and not Path(target).is_dir()


def _source_size(connection: duckdb.DuckDBPyConnection, source: str) -> int | None:
    """Bytes to copy, when they can be known beforehand."""
    if source.startswith(paths.DIRECT_SCHEME):
        source = source[len(paths.DIRECT_SCHEME) :]
    if not paths.is_volume_path(source):
        with contextlib.suppress(OSError):
            return Path(source).stat().st_size
        return None
    row = connection.execute("SELECT size FROM read_blob(?)", [source]).fetchone()
    return row[0] if row else None  # nvme_copy says what is wrong with a path
