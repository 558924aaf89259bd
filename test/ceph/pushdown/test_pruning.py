"""Objects without a row of the query are neither read nor asked, and answers are those of all objects."""

from __future__ import annotations

import re

import duckdb
import pytest
from ceph_support import one, rados, requests

OBJECTS = 8
MODES = ["never", "always", "auto", "filters"]

#: By type: a value of the i-th of 800 rows, in rising order.
VALUES = {
    "TINYINT": "i % 800 // 8 - 50",
    "SMALLINT": "i * 70 - 28000",
    "INTEGER": "(i - 400) * 1000000",
    "BIGINT": "(i - 400) * 10000000000000000",
    "UTINYINT": "i // 4",
    "USMALLINT": "i * 80",
    "UINTEGER": "i * 5000000",
    "DECIMAL(4,1)": "(i - 400) / 10",
    "DECIMAL(9,3)": "(i - 400) * 1.001",
    "DECIMAL(18,4)": "(i - 400) * 1000000000.5",
    "DATE": "DATE '1960-01-01' + (i * 30)::INTEGER",
    "TIMESTAMP": "TIMESTAMP '1960-01-01' + INTERVAL (i) DAY",
    "VARCHAR": "printf('%05d', i)",
}
#: Without bounds in the attribute, or without any that are compared as integers.
OTHER_VALUES = {
    "UBIGINT": "i::UBIGINT * 20000000000000000",
    "HUGEINT": "(i - 400) * 10000000000000000",
    "DOUBLE": "(i - 400) / 7",
    "TIMESTAMPTZ": "TIMESTAMPTZ '1960-01-01 00:00:00+00' + INTERVAL (i) DAY",
    "BLOB": "printf('%05d', i)::BLOB",
    "DECIMAL(38,2)": "(i - 400) * 1000000000000000000000",
}


def write_objects(connection, prefix: str, value: str, type_name: str) -> None:
    """The rows in equal parts, each with a NULL, in order."""
    for number in range(OBJECTS):
        rows = f"range({number * 100}, {number * 100 + 100}) AS r(i)"
        connection.execute(
            f"COPY (SELECT i, ({value})::{type_name} AS v FROM {rows} UNION ALL SELECT NULL, NULL) "
            f"TO '{prefix}/{number}.parquet' (FORMAT parquet)"
        )


def left(connection, query: str) -> str:
    """How many objects a scan has, as EXPLAIN shows it, read or pushed; empty when all of them."""
    plan = connection.execute(f"EXPLAIN (FORMAT json) {query}").fetchone()[1]
    found = re.search(r'"Scanning Files":\s*"(\d+)/(\d+)"', plan)
    found = found or re.search(r'"Objects":\s*"(\d+) of (\d+),', plan)
    return f"{found[1]}/{found[2]}" if found else ""


CONDITIONS = (
    *("v = $1", "v < $1", "v >= $1", "v <> $1", "$1 <= v", "v IN ($1)", "v BETWEEN $1 AND $1"),
    *("v IS NULL", "v = $1 OR v IS NULL", "NOT v > $1"),
)


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("type_name", [*VALUES, *OTHER_VALUES])
def test_answers_are_those_of_all_objects(con, data_prefix, type_name, mode):
    write_objects(con, data_prefix, {**VALUES, **OTHER_VALUES}[type_name], type_name)
    con.execute(f"CREATE TEMP TABLE copy AS FROM '{data_prefix}/*.parquet'")
    con.execute(f"SET rados_offload = '{mode}'")
    source = f"read_parquet('{data_prefix}/*.parquet')"
    pruned = 0
    for row in (99, 450):
        constant = literal(con, row)
        for condition in CONDITIONS:
            query = f"SELECT count(*), sum(i) FROM {{}} WHERE {condition.replace('$1', constant)}"
            expected = con.execute(query.format("copy")).fetchall()
            assert con.execute(query.format(source)).fetchall() == expected, condition
            pruned += left(con, query.format(source)) != ""
    assert (pruned > 0) == (type_name in VALUES)


def literal(connection, row: int) -> str:
    """The value of a row of `copy` in SQL."""
    text, type_name = connection.execute(f"SELECT v::VARCHAR, typeof(v) FROM copy WHERE i = {row}").fetchone()
    return f"CAST('{text}' AS {type_name})"


@pytest.mark.parametrize("mode", MODES)
def test_no_byte_of_a_pruned_object_is_read(con, data_prefix, mode):
    write_objects(con, data_prefix, "i", "INTEGER")
    con.execute(f"SET rados_offload = '{mode}'")
    query = (
        f"SELECT sum(i), count(v) FROM read_parquet('{data_prefix}/*.parquet') WHERE v BETWEEN 350 AND 399"
    )
    assert left(con, query) == "1/8"
    con.execute("CALL rados_reset_stats()")
    assert con.execute(query).fetchall() == [(sum(range(350, 400)), 50)]
    # The first object is opened to bind the query, and the one that is left.
    size = one(con, f"SELECT max(size) FROM read_blob('{data_prefix}/*.parquet')")
    con.execute("CALL rados_reset_stats()")
    con.execute(query).fetchall()
    assert requests(con, "exec") <= 1
    assert requests(con, "read", "bytes") < 3 * size


def test_statistics_of_replaced_content_do_not_count(con, cluster, data_prefix, tmp_path):
    """Another program replaces the content, at once and with as many bytes, and keeps the attributes."""
    write_objects(con, data_prefix, "i", "INTEGER")
    contents = {}
    for name, first in (("old", 300), ("new", 100300)):
        path = tmp_path / f"{name}.parquet"
        rows = f"SELECT i, i::INTEGER AS v FROM range({first}, {first + 100}) r(i)"
        con.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet, COMPRESSION uncompressed)")
        contents[name] = path.read_bytes()
    pool, _, name = f"{data_prefix}/3.parquet".removeprefix("rados://").partition("/")
    rows = "SELECT i, i::INTEGER AS v FROM range(300, 400) r(i)"
    con.execute(f"COPY ({rows}) TO '{data_prefix}/3.parquet' (FORMAT parquet, COMPRESSION uncompressed)")
    written = con.execute(f"SELECT size FROM read_blob('{data_prefix}/3.parquet')").fetchone()[0]
    assert written == len(contents["old"]) == len(contents["new"])
    rados(cluster, "-p", pool, "put", name, "-", data=contents["new"])
    query = f"SELECT count(*) FROM read_parquet('{data_prefix}/*.parquet') WHERE v >= 100000"
    for mode in MODES:  # the recorded checksum of the footer is of the old content, too
        con.execute(f"SET rados_offload = '{mode}'")
        assert con.execute(query).fetchall() == [(100,)], mode
        assert left(con, query) == "1/8", mode


def test_all_objects_pruned(con, data_prefix):
    write_objects(con, data_prefix, "i", "INTEGER")
    query = f"SELECT count(*) FROM read_parquet('{data_prefix}/*.parquet') WHERE v > 10000"
    assert con.execute(query).fetchall() == [(0,)]
    assert left(con, query) == "1/8"


def test_scans_that_cannot_be_pruned(con, data_prefix):
    """Columns that say which object a row is from keep their meaning."""
    write_objects(con, data_prefix, "i", "INTEGER")
    source = f"read_parquet('{data_prefix}/*.parquet'"
    rows = con.execute(f"SELECT DISTINCT file_index FROM {source}) WHERE v = 350").fetchall()
    assert rows == [(3,)]
    rows = con.execute(f"SELECT DISTINCT filename FROM {source}, filename = true) WHERE v = 350").fetchall()
    assert rows == [(f"{data_prefix}/3.parquet",)]
    # No object is examined without a filter, or with one that statistics cannot decide.
    counts = []
    for condition in ("true", "i IS NOT NULL", "i + v = 7", "v >= 0"):
        con.execute("CALL rados_reset_stats()")
        con.execute(f"SELECT sum(v), sum(i) FROM {source}) WHERE {condition}").fetchall()
        counts.append(requests(con, "stat"))
    assert counts[0] == counts[1] == counts[2] == counts[3] - OBJECTS


def test_columns_of_other_types_and_names(con, data_prefix):
    """The type of the list is that of the first object; bounds of another stored type do not count."""
    con.execute(f"COPY (SELECT 1::BIGINT AS v, 'x' AS s) TO '{data_prefix}/a.parquet' (FORMAT parquet)")
    con.execute(f"COPY (SELECT 70::INTEGER AS v) TO '{data_prefix}/b.parquet' (FORMAT parquet)")
    con.execute(f"COPY (SELECT 70::BIGINT AS V) TO '{data_prefix}/c.parquet' (FORMAT parquet)")
    source = f"read_parquet('{data_prefix}/*.parquet', union_by_name = true)"
    assert con.execute(f"SELECT count(*) FROM {source} WHERE v = 70").fetchall() == [(2,)]
    assert con.execute(f"SELECT count(*) FROM {source} WHERE s = 'x'").fetchall() == [(1,)]
    assert con.execute(f"SELECT count(*) FROM {source} WHERE s IS NULL").fetchall() == [(2,)]


def test_an_object_that_is_gone(con, cluster, data_prefix):
    write_objects(con, data_prefix, "i", "INTEGER")
    pool, _, name = f"{data_prefix}/3.parquet".removeprefix("rados://").partition("/")
    names = [f"{data_prefix}/{number}.parquet" for number in range(OBJECTS)]
    rados(cluster, "-p", pool, "rm", name)
    with pytest.raises(duckdb.IOException, match=r"3\.parquet"):
        con.execute(f"SELECT count(*) FROM read_parquet({names}) WHERE v = 350").fetchall()
