"""Columns that a query, or the table of a COPY, names otherwise than the objects do: positions count."""

from __future__ import annotations

import duckdb
import pytest
from ceph_support import one

MODES = ["never", "always", "filters"]


@pytest.fixture(params=MODES)
def named(con, data_prefix, request):
    """A connection. Of two objects, one has 1 in column a and 10 in column b, the other one 2 and 20."""
    for number in (1, 2):
        rows = f"SELECT {number}::INTEGER AS a, {number * 10}::INTEGER AS b"
        con.execute(f"COPY ({rows}) TO '{data_prefix}/{number}.parquet' (FORMAT parquet)")
    con.execute(f"SET rados_offload = '{request.param}'")
    return con


@pytest.mark.parametrize("options", ["", ", union_by_name = true"])
def test_names_that_are_swapped(named, data_prefix, options):
    source = f"read_parquet('{data_prefix}/*.parquet'{options}) AS t(b, a)"
    for query, rows in (
        ("SELECT count(*) FROM {} WHERE a = 20", [(1,)]),
        ("SELECT count(*) FROM {} WHERE a = 2", [(0,)]),
        ("SELECT sum(a), max(b) FROM {}", [(30, 2)]),
        ("SELECT b, sum(a + b) FROM {} GROUP BY b ORDER BY b", [(1, 11), (2, 22)]),
        ("SELECT a, b FROM {} WHERE b < 5 ORDER BY a DESC LIMIT 1", [(20, 2)]),
        ("SELECT b FROM {} WHERE a > 10 LIMIT 3", [(2,)]),
    ):
        assert named.execute(query.format(source)).fetchall() == rows, query


def test_a_name_for_the_first_column_only(named, data_prefix):
    """The second one keeps the name that it has in the objects."""
    query = f"SELECT t.* FROM read_parquet('{data_prefix}/*.parquet') AS t(c) WHERE c = 2"
    assert named.execute(query).fetchall() == [(2, 20)]


def test_keys_of_joins(named, data_prefix):
    named.execute("CREATE TABLE keys AS SELECT 20::INTEGER AS k UNION ALL SELECT 1")
    source = f"read_parquet('{data_prefix}/*.parquet') AS t(b, a)"
    assert named.execute(f"SELECT a, b FROM {source} JOIN keys ON t.a = keys.k").fetchall() == [(20, 2)]
    assert named.execute(f"SELECT a, b FROM {source} JOIN keys ON t.b = keys.k").fetchall() == [(10, 1)]


def test_requests_have_the_names_of_the_objects(con, data_prefix):
    con.execute(f"COPY (SELECT 1 AS a, 2 AS b) TO '{data_prefix}/1.parquet' (FORMAT parquet)")
    con.execute("SET rados_offload = 'always'")
    query = f"SELECT sum(a) FROM read_parquet('{data_prefix}/*.parquet') AS t(b, a)"
    assert con.execute(query).fetchall() == [(2,)]
    pushed = one(con, "SELECT pushed FROM rados_scans() ORDER BY scan DESC LIMIT 1")
    assert "sum(b)" in pushed
    assert "sum(a)" not in pushed


def test_the_table_of_a_copy(named, data_prefix):
    named.execute("CREATE TABLE t (b INTEGER, a INTEGER)")
    named.execute(f"COPY t FROM '{data_prefix}/1.parquet' (FORMAT parquet)")
    assert named.execute("SELECT b, a FROM t").fetchall() == [(1, 10)]


def test_a_column_that_a_copy_finds_in_the_first_object_only(named, data_prefix):
    """The reader makes one of this name where an object has none."""
    folder = f"{data_prefix}/made"
    named.execute(f"COPY (SELECT 7::BIGINT AS file_row_number) TO '{folder}/a.parquet' (FORMAT parquet)")
    named.execute(f"COPY (SELECT 8::BIGINT AS other) TO '{folder}/b.parquet' (FORMAT parquet)")
    named.execute("CREATE TABLE t (x BIGINT)")
    with pytest.raises(duckdb.InvalidInputException, match="file_row_number"):
        named.execute(f"COPY t FROM '{folder}/*.parquet' (FORMAT parquet)")
    assert one(named, "SELECT count(*) FROM t") == 0
