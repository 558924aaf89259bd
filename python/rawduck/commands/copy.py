"""`rawduck cp`: DuckDB files between ordinary file systems and volumes."""

from __future__ import annotations

import concurrent.futures
import os
import time
from pathlib import Path, PurePosixPath
from typing import Annotated

import duckdb
import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

import rawduck
from rawduck import paths, render

_POLL_SECONDS = 0.1


def register(app: typer.Typer) -> None:
    epilog = "Example: rawduck cp sales.duckdb nvme:///data/disk.rawduck/sales.duckdb"
    app.command("cp", epilog=epilog)(copy)


def copy(
    source: Annotated[str, typer.Argument(help="A file, or nvme://<target>/<file>.", show_default=False)],
    destination: Annotated[
        str,
        typer.Argument(
            help="The same; a directory, or nvme://<target>/, keeps the name.", show_default=False
        ),
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a destination that exists.")
    ] = False,
) -> None:
    """Copy a file onto a volume, off it, or between volumes, byte for byte."""
    source, destination = _absolute(source), _absolute(destination)
    destination = _with_name(destination, source)
    start = time.perf_counter()
    with rawduck.connect() as connection, _progress_bar() as progress:
        task = progress.add_task(PurePosixPath(source).name, total=_source_size(connection, source))
        copied = copy_file(connection, source, destination, overwrite, progress, task)
        progress.update(task, completed=copied, total=copied)
    took = render.seconds(time.perf_counter() - start)
    render.console.print(
        f"Copied {render.size(copied)} to {destination} in {took}", soft_wrap=True, markup=False
    )


def copy_file(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    destination: str,
    overwrite: bool,
    progress: Progress,
    task,
) -> int:
    """Runs nvme_copy on a thread and moves the bar as DuckDB reports progress. Returns bytes copied."""
    query = "SELECT bytes FROM nvme_copy(?, ?, overwrite := ?)"
    connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            lambda: connection.execute(query, [source, destination, overwrite]).fetchone()[0]
        )
        try:
            while not _finished(running):
                percent = connection.query_progress()
                total = progress.tasks[task].total
                if total and percent > 0:
                    progress.update(task, completed=total * percent / 100)
        except KeyboardInterrupt:
            connection.interrupt()
            raise
        return running.result()


def _finished(running: concurrent.futures.Future) -> bool:
    concurrent.futures.wait([running], timeout=_POLL_SECONDS)
    return running.done()


def _progress_bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
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


def _with_name(destination: str, source: str) -> str:
    """A destination that names a directory takes over the name of the source."""
    if destination.endswith("/") or (not paths.has_scheme(destination) and Path(destination).is_dir()):
        return destination.rstrip("/") + "/" + PurePosixPath(source).name
    return destination


def _source_size(connection: duckdb.DuckDBPyConnection, source: str) -> int | None:
    """Bytes to copy, when they can be known beforehand."""
    if source.startswith(paths.DIRECT_SCHEME):
        source = source[len(paths.DIRECT_SCHEME) :]
    if not paths.is_volume_path(source):
        return Path(source).stat().st_size
    return connection.execute("SELECT size FROM read_blob(?)", [source]).fetchone()[0]
