"""The same database on a volume and in an ordinary file."""

from __future__ import annotations

import duckdb
import pytest
import rawduck

MAKE_ORDERS = (
    "CREATE TABLE orders AS "
    "SELECT range AS id, range * 1.5 AS price, 'c' || range % 3 AS customer FROM range(1000)"
)


@pytest.fixture
def volume(tmp_path) -> str:
    """The path of a database on a new volume."""
    target = tmp_path / "disk.rawduck"
    with rawduck.connect() as connection:
        connection.execute("CALL nvme_format(?, size := '64M')", [str(target)]).fetchall()
    path = f"nvme://{target}/shop.duckdb"
    with rawduck.connect(path) as connection:
        connection.execute(MAKE_ORDERS)
    return path


@pytest.fixture
def file(tmp_path) -> str:
    """The path of such a database of stock DuckDB."""
    path = str(tmp_path / "shop.duckdb")
    with duckdb.connect(path) as connection:
        connection.execute(MAKE_ORDERS)
    return path


@pytest.fixture(autouse=True)
def _nothing_stays_open():
    """A library that was closed has let go of the volume."""
    yield
    with rawduck.connect() as connection:
        assert connection.execute("SELECT target FROM nvme_volumes()").fetchall() == []
