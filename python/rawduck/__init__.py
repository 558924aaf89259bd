"""rawduck: stock DuckDB on raw volumes.

>>> import rawduck
>>> connection = rawduck.connect("nvme:///data/disk.rawduck/sales.duckdb")
>>> connection.sql("FROM orders")

The connection is an ordinary `duckdb.DuckDBPyConnection`, the database its main one. For libraries that
connect by themselves, such as SQLAlchemy or Ibis, call `rawduck.register()` first.
"""

from __future__ import annotations

import importlib

# As in `typing`, which takes as long to load as all else before the command line answers an interrupt.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rawduck.connection import connect, extension_path, load, register
    from rawduck.errors import RawduckError

__version__: str
__all__ = ["RawduckError", "connect", "extension_path", "load", "register"]


def __getattr__(name: str) -> Any:
    """Loads what is asked for: the command line is to answer an interrupt before DuckDB is loaded."""
    if name == "__version__":
        return _version()
    if name not in __all__:
        raise AttributeError(f"module 'rawduck' has no attribute '{name}'")
    module = importlib.import_module("rawduck.errors" if name == "RawduckError" else "rawduck.connection")
    return getattr(module, name)


def __dir__() -> list[str]:
    """What notebooks complete, loaded or not."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rawduck")
    except PackageNotFoundError:  # used from the source tree, without being installed
        return "0"
