"""rawduck: stock DuckDB on raw volumes.

>>> import rawduck
>>> connection = rawduck.connect("nvme:///data/disk.rawduck/sales.duckdb")
>>> connection.sql("FROM orders")

The connection is an ordinary `duckdb.DuckDBPyConnection`.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from rawduck.connection import connect, extension_path, load
from rawduck.errors import RawduckError

try:
    __version__ = version("rawduck")
except PackageNotFoundError:  # used from the source tree, without being installed
    __version__ = "0"
__all__ = ["RawduckError", "connect", "extension_path", "load"]
