"""`rawduck snapshot` and `clone`."""

from __future__ import annotations

from typing import Annotated

import typer

import rawduck
from rawduck import paths, render
from rawduck.commands.options import Json


def register(app: typer.Typer) -> None:
    snapshot_example = "rawduck snapshot nvme:///data/disk.rawduck/sales.duckdb@monday"
    clone_example = (
        "rawduck clone nvme:///data/disk.rawduck/sales.duckdb@monday nvme:///data/disk.rawduck/trial.duckdb"
    )
    app.command("snapshot", epilog=f"Example: {snapshot_example}")(snapshot)
    app.command("clone", epilog=f"Example: {clone_example}")(clone)


def snapshot(
    path: Annotated[str, typer.Argument(metavar="PATH@NAME", help="nvme://<target>/<file>@<name>")],
    json: Json = False,
) -> None:
    """Keep a file as it is now under another name, at once and whatever its size; a database with its log."""
    _require_volume_path(path)
    file, at, name = path.rpartition("@")
    if not at:
        raise rawduck.RawduckError(f"{path}: give the snapshot a name, as in {path}@monday")
    with rawduck.connect() as connection:
        (row,) = render.rows(connection, "SELECT * FROM nvme_snapshot(?, ?)", [file, name])
    if json:
        render.print_json(row)


def clone(
    source: Annotated[
        str, typer.Argument(help="nvme://<target>/<file>, or a snapshot: <file>@<name>.", show_default=False)
    ],
    destination: Annotated[
        str, typer.Argument(help="nvme://<target>/<new file> on the same volume.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Make a database of a snapshot or of another one. Both share their space until one of them changes."""
    for path in (source, destination):
        _require_volume_path(path)
    with rawduck.connect() as connection:
        (row,) = render.rows(connection, "SELECT * FROM nvme_clone(?, ?)", [source, destination])
    if json:
        render.print_json(row)


def _require_volume_path(path: str) -> None:
    if not paths.is_volume_path(path):
        raise rawduck.RawduckError(f"{path}: not a path on a volume; give nvme://<target>/<file>")
