"""Objects that COPY ... (PARTITION_BY ...) wrote: pushed where no partition is needed of their rows."""

from __future__ import annotations

import pytest
from ceph_support import one, rados
from rawduck.ceph.cluster import class_directory

SCAN = "SELECT offloaded, why, objects, answered FROM rados_scans() ORDER BY scan DESC LIMIT 1"


@pytest.fixture
def source(con, data_prefix):
    """Three partitions of 1,000 rows, as a pattern of read_parquet."""
    if class_directory() is None:
        pytest.skip("no object class: rados/objclass.h or libpython was missing when the package was built")
    rows = "SELECT i AS k, i % 3 AS p, i * 2 AS v FROM range(3000) t(i)"
    con.execute(f"COPY ({rows}) TO '{data_prefix}' (FORMAT parquet, PARTITION_BY (p))")
    con.execute("SET rados_offload = 'always'")
    return f"{data_prefix}/**/*.parquet"


@pytest.mark.parametrize("options", ["", ", hive_partitioning = true", ", hive_partitioning = false"])
def test_rows_without_their_partition_are_pushed(con, source, options):
    total = "SELECT sum(v), count(*) FROM read_parquet('{}'{}) WHERE k >= 30"
    assert con.execute(total.format(source, options)).fetchall() == [(sum(range(60, 6000, 2)), 2970)]
    assert con.execute(SCAN).fetchone()[0::2] == (True, 3)
    rows = f"SELECT k, v FROM read_parquet('{source}'{options}) WHERE k < 3 ORDER BY k"
    assert con.execute(rows).fetchall() == [(0, 0), (1, 2), (2, 4)]
    assert con.execute(SCAN).fetchone()[0]


def test_partitions_choose_objects(con, source):
    """DuckDB takes the other objects out of the scan and the filter away."""
    query = f"SELECT sum(v), count(*) FROM read_parquet('{source}') WHERE p = 1 AND k >= 30"
    assert con.execute(query).fetchall() == [(sum(2 * i for i in range(31, 3000, 3)), 990)]
    offloaded, _, objects, answered = con.execute(SCAN).fetchone()
    assert (offloaded, objects, answered) == (True, 1, 1)


def test_partitions_themselves_are_read(con, source):
    """An OSD knows the content of an object, not its path. EXPLAIN says so."""
    queries = (
        f"SELECT p, sum(v) FROM read_parquet('{source}') GROUP BY p ORDER BY p",
        f"SELECT k + p AS x FROM read_parquet('{source}') WHERE k < 9 ORDER BY x",
        f"SELECT count(*) FROM read_parquet('{source}') WHERE p * 1000 > k",
        f"SELECT count(*) FROM read_parquet('{source}') JOIN (VALUES (1), (2)) keys(q) ON p = q WHERE k > 7",
    )
    for query in queries:
        con.execute("SET rados_offload = 'never'")
        expected = con.execute(query).fetchall()
        con.execute("SET rados_offload = 'always'")
        assert con.execute(query).fetchall() == expected
        assert (
            "column p is a partition of the objects' paths" in con.execute("EXPLAIN " + query).fetchone()[1]
        )


def test_a_column_of_the_object_with_the_name_of_a_partition(con, cluster, source):
    """The path has the value, whatever the object stores."""
    folder = source.removesuffix("/**/*.parquet")
    con.execute(f"COPY (SELECT 1 AS k, 99 AS p, 5 AS v) TO '{folder}/p=7/x.parquet' (FORMAT parquet)")
    assert one(con, f"SELECT count(*) FROM read_parquet('{source}') WHERE p = 99") == 0
    assert one(con, f"SELECT sum(v) FROM read_parquet('{source}') WHERE p = 7") == 5
    assert one(con, f"SELECT max(p) FROM read_parquet('{source}') WHERE k = 1 AND v = 5") == 7
    name = f"{folder}/p=7/x.parquet".removeprefix("rados://data/")
    rados(cluster, "-p", "data", "rm", name)
