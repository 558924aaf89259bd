"""What the extension says of volumes, and the one thing it does to a target: format it."""

from __future__ import annotations

import duckdb

from rawduck.render import Row, Rows, rows


def format_volume(
    connection: duckdb.DuckDBPyConnection, target: str, **options: str | int | bool | list[str]
) -> Row:
    """Calls nvme_format with those of its arguments that are set."""
    given = {
        name: value if value is True or isinstance(value, list) else str(value)
        for name, value in options.items()
        if value or isinstance(value, list)  # agreed to nothing is not the same as not asked
    }
    named = "".join(f", {name} := ?" for name in given)
    return rows(connection, f"SELECT * FROM nvme_format(?{named})", [target, *given.values()])[0]


def occupants(connection: duckdb.DuckDBPyConnection, targets: list[str]) -> Rows:
    """What formatting a volume on these would destroy."""
    query = "SELECT * FROM nvme_occupants(?, stripe_with := ?)"
    return rows(connection, query, [targets[0], targets[1:]])


def volume_info(connection: duckdb.DuckDBPyConnection, target: str) -> Row:
    return rows(connection, "SELECT * FROM nvme_info(?)", [target])[0]


def placement(connection: duckdb.DuckDBPyConnection, info: Row) -> list[Row]:
    """What nvme_fdp says of a volume; nothing where its writes cannot be placed."""
    if info["placement"].startswith("off"):
        return []
    return rows(connection, "SELECT * FROM nvme_fdp(?)", [info["target"]])


def volume_files(connection: duckdb.DuckDBPyConnection, target: str) -> Rows:
    return rows(connection, "SELECT * FROM nvme_files(?) ORDER BY name", [target])


def volume_snapshots(connection: duckdb.DuckDBPyConnection, target: str) -> Rows:
    return rows(connection, "SELECT * FROM nvme_snapshots(?) ORDER BY file, created", [target])


def byte_ranges(file: Row, lba_size: int) -> list[tuple[int, int]]:
    """Where a file lies on its target: (offset, length) in bytes, in file order."""
    return [(extent["lba"] * lba_size, extent["lba_count"] * lba_size) for extent in file["extent_list"]]
