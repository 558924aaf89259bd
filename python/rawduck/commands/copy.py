"""`rawduck cp`: DuckDB files between ordinary file systems and volumes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Annotated

import duckdb
import typer
from rich.progress import Progress

import rawduck
from rawduck import paths, render
from rawduck.commands import names
from rawduck.commands.options import Json
from rawduck.commands.progress import ShownBytes, progress_bar, run_shown


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
    with rawduck.connect() as connection, progress_bar() as progress:
        sources = names.matching(connection, [_absolute(source) for source in given])
        into = destination.endswith("/") or _is_folder(connection, destination)
        targets = names.targets_of(sources, into, destination)
        try:
            with names.one_mount(connection):
                for source, target in zip(sources, targets, strict=True):
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
    show = ShownBytes("cp", progress, task, total) if total else None
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


def copy_file(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    destination: str,
    overwrite: bool,
    show: Callable[[float], None] | None,
) -> int:
    """Copies a file, showing what is done, and returns its bytes."""
    query = "SELECT bytes FROM nvme_copy(?, ?, overwrite := ?)"
    return run_shown(connection, query, [source, destination, overwrite], show)["bytes"]


def _absolute(path: str) -> str:
    if paths.has_scheme(path):
        return path
    if (meant := paths.meant_on_volume(path)) and not paths.holds_volume(path):
        raise rawduck.RawduckError(f"{path}: {meant}")
    return os.path.abspath(path) + ("/" if path.endswith("/") else "")


def _is_folder(connection: duckdb.DuckDBPyConnection, path: str) -> bool:
    if paths.is_volume_path(path):
        return names.is_folder(connection, path)
    return not paths.has_scheme(path) and Path(path).is_dir()


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
