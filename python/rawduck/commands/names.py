"""`rawduck mv` and `rm`, and the patterns that they and `cp` take for files on volumes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated

import duckdb
import typer

import rawduck
from rawduck import paths, render
from rawduck.commands.options import Json
from rawduck.commands.progress import in_one_piece

_PATTERN_CHARACTERS = "*?["
# Of what nvme_remove says of a snapshot.
_A_SNAPSHOT = "belongs to a snapshot"
_LATEST = "@latest"
_LOG_ENDINGS = (".wal", ".wal.checkpoint", ".wal.recovery")


def register(app: typer.Typer) -> None:
    move_example = "rawduck mv nvme:///data/disk.rawduck/new.duckdb nvme:///data/disk.rawduck/sales.duckdb"
    app.command("mv", epilog=f"Example: {move_example}")(move)
    app.command("rm", epilog="Example: rawduck rm 'nvme:///data/disk.rawduck/old/*.parquet'")(remove)


def move(
    path: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE... DESTINATION",
            help="nvme://<target>/<file>; a source may be a quoted pattern; a destination that ends with a "
            "slash keeps the name.",
            show_default=False,
        ),
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a destination that exists.")
    ] = False,
    json: Json = False,
) -> None:
    """Give files other names on their volume, databases with their logs, at once: nothing is copied."""
    _require_volume_paths(path)
    given, destination = sources_and_destination(path)
    query = "SELECT * FROM nvme_move(?, ?, overwrite := ?)"
    moved: list[render.Row] = []
    with rawduck.connect() as connection:
        sources = matching(connection, given)
        _require_no_snapshots(connection, [source for source in sources if source not in given], "moved")
        sources = [source for source in sources if not _goes_with_another(source, sources)]
        targets = targets_of(
            sources, destination.endswith("/") or is_folder(connection, destination), destination
        )
        _require_no_foreign_log(targets)
        try:
            with one_mount(connection):
                for source, target in zip(sources, targets, strict=True):
                    with _said_when_done():
                        moved += render.rows(connection, query, [source, target, overwrite])
        finally:  # what was done before something failed
            if json:
                render.print_json(moved)


def _goes_with_another(source: str, sources: list[str]) -> bool:
    """A log goes with its database, and moved before it would be what that replaces."""
    return any(source.endswith(end) and source.removesuffix(end) in sources for end in _LOG_ENDINGS)


def _require_no_foreign_log(targets: list[str]) -> None:
    """A database brings its own logs, whose names these are."""
    for target in targets:
        if _goes_with_another(target, targets):
            raise rawduck.RawduckError(
                f"{target} would be the log of a database that is moved there, too, and is another one's; "
                "nothing was done: move them one after the other"
            )


def remove(
    path: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="nvme://<target>/<file>; or a pattern in quotes: * and ** and ? and \\[a-z].",
            show_default=False,
        ),
    ],
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Of a directory: with all that is in it.")
    ] = False,
    json: Json = False,
) -> None:
    """Remove files from a volume, databases with their logs, snapshots by name, and empty directories.

    Space that nothing else has is free at once.
    """
    _require_volume_paths(path)
    removed: list[render.Row] = []
    with rawduck.connect() as connection:
        try:
            names = matching(connection, path)
            _require_no_snapshots(connection, [name for name in names if name not in path], "removed")
            if recursive:
                names = [part for name in names for part in _all_of(connection, name)]
            done: set[str] = set()
            with one_mount(connection):
                for name in names:
                    # A log goes with its database, which may come first.
                    if name not in done:
                        with _said_when_done():
                            rows = _remove_one(connection, name, by_name=name in path)
                            removed += rows
                        done |= {row["removed"] for row in rows}
        finally:  # what was done before something failed
            if json:
                render.print_json(removed)


def _require_no_snapshots(connection: duckdb.DuckDBPyConnection, found: list[str], done: str) -> None:
    """Of what patterns have found: one among them is noticed before anything is done."""
    splits = [paths.split_volume_path(path) for path in found if "@" in path]
    for target in {split[0] for split in splits if split}:
        query = "SELECT name FROM nvme_files(?) WHERE snapshot ORDER BY name"
        for (name,) in connection.execute(query, [target]).fetchall():
            if (target, name) in splits:
                raise rawduck.RawduckError(
                    f"{paths.volume_path(target, name)}: a snapshot, which no pattern means here; "
                    f"nothing was {done}: give another pattern, or names"
                )


def _all_of(connection: duckdb.DuckDBPyConnection, path: str) -> list[str]:
    """A directory and what it holds, directories behind what is in them; else what is named."""
    split = paths.split_volume_path(path)
    if not split:
        return [path]
    target, directory = split
    # What a reader keeps goes with the reader.
    query = """SELECT name, kind = 'directory', snapshot FROM nvme_files(?)
        WHERE (starts_with(name, ? || '/') OR (name = ? AND kind = 'directory'))
        AND NOT (snapshot AND regexp_matches(name, '@latest-[0-9a-f]{12}(\\.|$)')) ORDER BY name"""
    name = directory.rstrip("/")
    found = connection.execute(query, [target, name, name]).fetchall()
    if snapshots := [file for file, _, is_snapshot in found if is_snapshot]:
        raise rawduck.RawduckError(
            f"{path}: holds {snapshots[0]}, a snapshot; remove that by its name first. Nothing was removed"
        )
    # A log behind its database.
    files = [file for file, is_directory, _ in found if not is_directory]
    directories = [file for file, is_directory, _ in reversed(found) if is_directory]
    return [f"{paths.VOLUME_SCHEME}{target}/{file}" for file in (*files, *directories)] or [path]


def _remove_one(connection: duckdb.DuckDBPyConnection, path: str, by_name: bool) -> list[render.Row]:
    """A pattern takes no snapshot with it: that is what one has them for."""
    try:
        return render.rows(connection, "SELECT * FROM nvme_remove(?)", [path])
    except duckdb.IOException as error:
        if not by_name or _A_SNAPSHOT not in str(error):
            raise
    connection.rollback()
    connection.begin()
    return render.rows(connection, "SELECT dropped AS removed FROM nvme_drop_snapshot(?)", [path])


@contextlib.contextmanager
def _said_when_done() -> Iterator[None]:
    """One file: Ctrl-C comes when it is known what was done. It may have ended a request to another process,
    whose answer is not waited for then: what that says is shown."""
    with in_one_piece() as interrupts:
        try:
            yield
        except duckdb.Error as error:
            if not interrupts:
                raise
            render.print_error(str(error))


@contextlib.contextmanager
def one_mount(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """A transaction, which takes nothing back of what is removed, renamed or copied in it: until its end the
    volume stays mounted."""
    connection.begin()
    try:
        yield
    except BaseException:
        with contextlib.suppress(duckdb.Error):  # what failed first is to be told
            connection.rollback()
        raise
    connection.commit()


def _require_volume_paths(given: list[str]) -> None:
    for path in given:
        if not paths.is_volume_path(path):
            raise rawduck.RawduckError(f"{path}: not a path on a volume; give nvme://<target>/<file>")


def sources_and_destination(path: list[str]) -> tuple[list[str], str]:
    if len(path) < 2:
        raise rawduck.RawduckError(f"{path[0]}: no destination; give one behind it")
    return path[:-1], path[-1]


def matching(connection: duckdb.DuckDBPyConnection, given: list[str]) -> list[str]:
    """The files that are meant, each once. A file's name is no pattern; one without a match is an error."""
    found: dict[str, None] = {}
    for path in given:
        matches = [path]
        if paths.has_scheme(path) and any(character in path for character in _PATTERN_CHARACTERS):
            matches = _matches(connection, path)
        found |= dict.fromkeys(matches)
    return list(found)


def _matches(connection: duckdb.DuckDBPyConnection, pattern: str) -> list[str]:
    if _is_there(connection, pattern):
        return [pattern]
    rows = connection.execute("SELECT file FROM glob(?) ORDER BY file", [pattern]).fetchall()
    files = [row[0] for row in rows]
    if not files:
        raise rawduck.RawduckError(f"{pattern}: no file matches this pattern")
    return [pattern] if pattern in files else files


def _is_there(connection: duckdb.DuckDBPyConnection, path: str) -> bool:
    """Whether a file or a directory of a volume has this name, with its asterisks or brackets."""
    split = paths.split_volume_path(path) if paths.is_volume_path(path) else None
    if not split:
        return False
    target, name = split[0], split[1].rstrip("/")
    query = "SELECT count(*) FROM nvme_files(?) WHERE name = ? OR starts_with(name, ? || '/')"
    return connection.execute(query, [target, name, name]).fetchall()[0][0] > 0


def is_folder(connection: duckdb.DuckDBPyConnection, path: str) -> bool:
    """Whether it is a directory of a volume, or the root of one."""
    split = paths.split_volume_path(path.rstrip("/") + "/x") if paths.is_volume_path(path) else None
    if not split:
        return False
    target, name = split[0], split[1].rpartition("/")[0]
    query = (
        "SELECT count(*) FROM nvme_files(?) WHERE (name = ? AND kind = 'directory') OR starts_with(name, ?)"
    )
    return not name or connection.execute(query, [target, name, name + "/"]).fetchall()[0][0] > 0


def targets_of(sources: list[str], into_folder: bool, destination: str) -> list[str]:
    """The name that each of them is to have. Two with one name are refused before anything is done, or the
    second would replace the first."""
    if not into_folder and len(sources) > 1:
        raise rawduck.RawduckError(
            f"{destination}: {len(sources)} files cannot have one name; end the destination with a slash "
            "to keep their names"
        )
    targets: dict[str, str] = {}
    for source in sources:
        target = _with_name(destination, source) if into_folder else destination
        if target in targets:
            raise rawduck.RawduckError(
                f"{targets[target]} and {source} would both be {target}; nothing was done: take one after "
                "the other, with other names"
            )
        targets[target] = source
    return list(targets)


def _with_name(destination: str, source: str) -> str:
    """The source's name below the destination; what is read as @latest has the name of the file."""
    return destination.rstrip("/") + "/" + PurePosixPath(source).name.removesuffix(_LATEST)
