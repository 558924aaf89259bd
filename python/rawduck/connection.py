"""Connections of stock DuckDB with the extension loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb

from rawduck import paths
from rawduck.errors import RawduckError


def extension_path(*, ceph: bool = False) -> Path:
    """The loadable extension inside the installed package: the main one, or the one for Ceph."""
    path = Path(__file__).with_name("rawduck_ceph.duckdb_extension" if ceph else "rawduck.duckdb_extension")
    if path.exists():
        return path
    if ceph:
        raise RawduckError(
            "this rawduck was built without Ceph, since librados was missing; on Debian and Ubuntu run "
            "apt-get install librados-dev libradospp-dev (in a clone: scripts/bootstrap_ceph.sh), then "
            "install it again"
        )
    raise RawduckError(f"{path} is missing; install the package with: pip install .")


def load(connection: duckdb.DuckDBPyConnection, *, ceph: bool = False) -> duckdb.DuckDBPyConnection:
    """Loads the extension into a connection that was opened with `allow_unsigned_extensions`; returns it.

    With `ceph` also the extension that understands rados:// paths.
    """
    unsigned = connection.execute("SELECT current_setting('allow_unsigned_extensions')").fetchone()
    if not unsigned[0]:
        raise RawduckError(
            "this connection refuses unsigned extensions; open it with "
            "duckdb.connect(config={'allow_unsigned_extensions': True}), or use rawduck.connect()"
        )
    connection.execute(f"LOAD {paths.quote(str(extension_path()))}")
    if ceph:
        connection.execute(f"LOAD {paths.quote(str(extension_path(ceph=True)))}")
    return connection


def connect(
    database: str | os.PathLike[str] | None = None,
    *,
    read_only: bool = False,
    config: dict[str, Any] | None = None,
    ceph: bool = False,
) -> duckdb.DuckDBPyConnection:
    """Opens an ordinary DuckDB connection that understands nvme:// and direct:// paths, with `ceph` also rados://.

    `database` is attached under the stem of its file name and made the default (`USE`):
    nvme://<target>/<file> on a volume, direct://<file> for an ordinary DuckDB file through the same engines,
    or a plain path. Without one the connection starts empty, in memory.

    `config` goes to `duckdb.connect`. Of DuckDB's defaults only `allow_unsigned_extensions` is changed, which
    loading the extension needs.
    """
    connection = duckdb.connect(":memory:", config={"allow_unsigned_extensions": True, **(config or {})})
    try:
        load(connection, ceph=ceph)
        if database is not None:
            attach(connection, os.fspath(database), read_only=read_only)
    except BaseException:
        connection.close()
        raise
    return connection


def attach(connection: duckdb.DuckDBPyConnection, database: str, *, read_only: bool = False) -> str:
    """Attaches a database under its stem name and makes it the default. Returns the name."""
    name = paths.database_name(database)
    options = " (READ_ONLY)" if read_only else ""
    connection.execute(f"ATTACH {paths.quote(database)} AS {paths.identifier(name)}{options}")
    connection.execute(f"USE {paths.identifier(name)}")
    return name
