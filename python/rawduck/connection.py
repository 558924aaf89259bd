"""Connections of stock DuckDB with the extension in it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path
from typing import Any

import duckdb

from rawduck import duckdb_source, paths
from rawduck.errors import RawduckError


def extension_path(*, ceph: bool = False) -> Path:
    """The loadable extension inside the installed package: the main one, or the one for Ceph."""
    name = "rawduck_ceph.duckdb_extension" if ceph else "rawduck.duckdb_extension"
    path = Path(__file__).with_name(name)
    if path.exists():
        return path
    if not ceph:
        raise RawduckError(f"{path} is missing; install the package with: pip install .")
    # A package of its own (python/ceph_package), for rawduck's wheel.
    package = importlib.util.find_spec("rawduck_ceph")
    for folder in (package.submodule_search_locations or []) if package else []:
        if (path := Path(folder, name)).exists():
            return path
    raise RawduckError(
        "this rawduck has nothing for Ceph. Its wheels have not, because librados belongs to the system: run "
        "pip install 'rawduck[ceph]', and on Debian and Ubuntu apt-get install librados2. Nor has a build "
        "from source where librados was missing: run apt-get install librados-dev libradospp-dev (a clone: "
        "scripts/bootstrap_ceph.sh), then pip install --force-reinstall <clone>"
    )


def register() -> None:
    """Lets every database that this process opens from now on use nvme:// and direct:// paths, its main one
    included: `duckdb.connect("nvme:///dev/nvme1n1/sales.duckdb")`, and whatever library calls it.

    `connect` does this. Databases that are open already need `load`.
    """
    path = extension_path().with_name("librawduck_host.so")
    _require_fitting_duckdb()
    try:
        import _duckdb

        # Python keeps the symbols of its modules to itself; the extension takes DuckDB's from this one.
        ctypes.CDLL(_duckdb.__file__, mode=os.RTLD_NOW | os.RTLD_NOLOAD | os.RTLD_GLOBAL)
        function = ctypes.CDLL(str(path)).rawduck_register
    except (ImportError, OSError, AttributeError) as error:
        raise RawduckError(f"{path} cannot be used with DuckDB {duckdb.__version__}: {error}") from error
    function.restype = ctypes.c_bool
    if not function():
        raise RawduckError(
            f"{path} was built for another release than DuckDB {duckdb.__version__}; {_FITTING}"
        )


_FITTING = (
    f"pip install duckdb=={duckdb_source.VERSION} installs the DuckDB that fits, and pip install --upgrade "
    f"rawduck duckdb=={duckdb.__version__} the rawduck that fits DuckDB {duckdb.__version__}, if there is one"
)


def _require_fitting_duckdb() -> None:
    if duckdb.__version__ != duckdb_source.VERSION:
        raise RawduckError(
            f"this rawduck is for DuckDB {duckdb_source.VERSION}, and tied to its C++ interface; DuckDB "
            f"{duckdb.__version__} is installed: {_FITTING}"
        )


def load(connection: duckdb.DuckDBPyConnection, *, ceph: bool = False) -> duckdb.DuckDBPyConnection:
    """Loads the extension into the database of a connection, which is returned.

    With `ceph` also the extension that understands rados:// paths. What is not there yet has to be allowed:
    `duckdb.connect(config={"allow_unsigned_extensions": True})`.
    """
    with connection.cursor() as cursor:  # the connection's own result stays as it is
        if not _has_setting(cursor, "nvme_engine"):
            _load_file(cursor, extension_path())
        if ceph and not _has_setting(cursor, "rados_timeout"):
            _load_file(cursor, extension_path(ceph=True))
    return connection


def _has_setting(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    try:
        connection.execute("SELECT current_setting(?)", [name])
    except duckdb.CatalogException:
        return False
    return True


def _load_file(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    if connection.execute("SELECT current_setting('allow_unsigned_extensions')").fetchall() != [(True,)]:
        raise RawduckError(
            "this connection refuses unsigned extensions; open it with "
            "duckdb.connect(config={'allow_unsigned_extensions': True}), or use rawduck.connect()"
        )
    connection.execute(f"LOAD {paths.quote(str(path))}")


def connect(
    database: str | os.PathLike[str] | None = None,
    read_only: bool = False,
    config: dict[str, Any] | None = None,
    *,
    ceph: bool = False,
) -> duckdb.DuckDBPyConnection:
    """`duckdb.connect`, for paths on volumes, too; with `ceph` also for rados:// paths.

    `database`: nvme://<target>/<file> on a volume, direct://<file> for an ordinary DuckDB file through the
    same engines, or whatever DuckDB takes. Without one the connection starts empty, in memory.

    `config` has DuckDB's settings and those of rawduck, such as `nvme_engine`. With `ceph`, which loads an
    extension, `allow_unsigned_extensions` is set.
    """
    register()
    config = {**({"allow_unsigned_extensions": True} if ceph else {}), **(config or {})}
    path = ":memory:" if database is None else os.fspath(database)
    try:
        connection = duckdb.connect(path, read_only, config)
    except duckdb.IOException as error:
        if meant := paths.meant_on_volume(path):
            raise duckdb.IOException(f"{error} {meant}") from None
        if meant := paths.with_both_slashes(path):
            raise duckdb.IOException(f"{path}: a scheme is followed by two slashes: write {meant}") from None
        raise
    try:
        return load(connection, ceph=ceph)
    except BaseException:
        connection.close()
        raise
