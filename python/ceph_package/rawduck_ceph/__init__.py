"""The DuckDB extension for Ceph, which `rawduck.connect(ceph=True)` loads."""

from pathlib import Path


def extension_path() -> Path:
    """The loadable extension, for DuckDB's `LOAD`."""
    return Path(__file__).with_name("rawduck_ceph.duckdb_extension")
