"""An object that is replaced while a query runs: the query sees one version of it, or fails and says so."""

from __future__ import annotations

import duckdb
import pytest

MODES = ["never", "always", "filters"]
REPLACED = r"rados://data/.*replaced since .*run the query again"


@pytest.fixture(params=MODES)
def paused(con, request):
    """A connection on which a query stops after its first rows, until they are fetched."""
    con.execute(f"SET rados_offload = '{request.param}'")
    con.execute("SET threads = 1")
    con.execute("SET streaming_buffer_size = '100KB'")
    return con


#: The first branch of a UNION ALL, which is too long for the buffer of a result.
FIRST_BRANCH = "SELECT -1 AS i FROM range(3000000)"


def write(connection: duckdb.DuckDBPyConnection, path: str, values: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"COPY (SELECT i::INTEGER AS i FROM {values} AS t(i)) TO '{path}' (FORMAT parquet)")


def rows_after_replacing(paused, query: str, path: str, values: str) -> list[int]:
    """Starts the query, replaces the object, and fetches the rows that do not come from the first branch."""
    reader = paused.execute(query)
    assert reader.fetchone() == (-1,)
    write(paused, path, values)
    return sorted(i for (i,) in reader.fetchall() if i != -1)


def test_a_plan_is_not_used_for_a_newer_object(paused, data_prefix):
    """The statistics of the object that was bound removed the filter, which the new one needs."""
    path = f"{data_prefix}/x.parquet"
    write(paused, path, "range(10)")
    query = f"{FIRST_BRANCH} UNION ALL SELECT i FROM '{path}' WHERE i < 100"
    with pytest.raises(duckdb.IOException, match=REPLACED):
        rows_after_replacing(paused, query, path, "range(50, 150)")


def test_two_scans_see_one_version(paused, data_prefix):
    """Only the first object of a list stays open; the others are opened by each scan."""
    paths = [f"{data_prefix}/{name}.parquet" for name in ("a", "b")]
    for path in paths:
        write(paused, path, "range(10)")
    scan = f"SELECT i FROM read_parquet({paths})"
    query = f"{scan} UNION ALL {FIRST_BRANCH} UNION ALL {scan}"
    reader = paused.execute(query)
    while reader.fetchone() != (-1,):
        pass
    write(paused, paths[1], "range(100, 110)")
    with pytest.raises(duckdb.IOException, match=REPLACED):
        reader.fetchall()


def test_the_next_query_sees_the_new_object(paused, data_prefix):
    """Also in a transaction, and where the statement was prepared before."""
    path = f"{data_prefix}/x.parquet"
    write(paused, path, "range(10)")
    paused.execute(f"PREPARE total AS SELECT sum(i) FROM '{path}' WHERE i >= $1")
    paused.execute("BEGIN")
    assert paused.execute("EXECUTE total(1)").fetchall() == [(45,)]
    write(paused, path, "range(100, 102)")
    assert paused.execute("EXECUTE total(1)").fetchall() == [(201,)]
    paused.execute("COMMIT")
    assert paused.execute(f"SELECT min(i) FROM '{path}'").fetchall() == [(100,)]


def test_another_object_may_be_replaced_before_it_is_looked_at(paused, data_prefix):
    """The rows of each object are of one version; there is no snapshot of a pool."""
    paths = [f"{data_prefix}/{name}.parquet" for name in ("a", "b")]
    for path in paths:
        write(paused, path, "range(10)")
    query = f"{FIRST_BRANCH} UNION ALL SELECT i FROM read_parquet({paths}) WHERE i % 2 = 0"
    rows = rows_after_replacing(paused, query, paths[1], "range(100, 110)")
    assert rows == [0, 2, 4, 6, 8, 100, 102, 104, 106, 108]
