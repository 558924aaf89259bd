"""An expression that fails in an OSD fails the query only where reading comes to the value."""

from __future__ import annotations

import duckdb
import pytest
from ceph_support import one, requests

MODES = ["always", "shared", "filters"]
ROWS = 20000
NO_DATE = 9000  #: the row of each object whose text is no date
FILTER = "CAST(s AS DATE) > DATE '2019-01-01'"
FAILED = "an expression failed: Conversion Error"


@pytest.fixture
def source(con, data_prefix):
    """Four objects; `nothing` is a table without rows, which the optimizer does not know."""
    for part in range(4):
        first = part * ROWS
        text = f"CASE WHEN i = {first + NO_DATE} THEN 'nonsense' ELSE '2020-01-01' END"
        query = f"SELECT i AS k, i % 7 AS a, {text} AS s FROM range({first}, {first + ROWS}) r(i)"
        con.execute(f"COPY ({query}) TO '{data_prefix}/{part}.parquet' (FORMAT parquet)")
    con.execute("CREATE TABLE nothing AS SELECT 1::BIGINT AS x, 'x' AS word")
    con.execute("DELETE FROM nothing")
    con.execute(f"CREATE VIEW rows AS FROM read_parquet('{data_prefix}/*.parquet')")
    return f"read_parquet('{data_prefix}/*.parquet')"


def rows_of(con, mode: str, query: str, threads: int = 1) -> list:
    con.execute(f"SET rados_offload = '{mode}'")
    con.execute(f"SET threads = {threads}")
    return con.execute(query).fetchall()


def last_scan(con, source: str) -> dict:
    result = con.execute("FROM rados_scans() ORDER BY scan DESC LIMIT 1")
    scan = dict(zip([column[0] for column in result.description], result.fetchone(), strict=True))
    assert scan["first_object"] in source.replace("*", "0")
    return scan


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("mode", MODES)
def test_an_empty_other_side(con, source, mode, threads):
    """DuckDB asks the scan for rows all the same. Expressions that may fail are a filter of their own above a
    view. So little passes the filter below it that this waits for more rows, and is then dropped."""
    query = (
        f"SELECT k FROM rows WHERE {FILTER} AND (k = {NO_DATE} OR a = -3) "
        "INTERSECT SELECT x FROM nothing WHERE word SIMILAR TO '(?i)air'"
    )
    assert rows_of(con, "never", query, threads) == []
    assert rows_of(con, mode, query, threads) == []
    scan = last_scan(con, source)
    assert scan["offloaded"]
    assert (scan["answered"], scan["fell_back"]) == (0, 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, x FROM {source}, nothing WHERE {filter}",
        "SELECT count(*) FROM {source}, nothing WHERE {filter}",
        "SELECT k FROM (SELECT k FROM {source} LEFT JOIN nothing ON k = x WHERE {filter}) LIMIT 8000",
        "SELECT k FROM {source} WHERE {filter} LIMIT 8000",
    ],
)
def test_an_end_before_the_error(con, source, mode, query):
    text = query.format(source=source, filter=FILTER)
    assert rows_of(con, mode, text) == rows_of(con, "never", text)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM {source} WHERE {filter}",
        "SELECT k FROM {source} WHERE {filter} LIMIT 9001",
        "SELECT count(*) FROM {source} WHERE {filter}",
        "SELECT max(CAST(s AS DATE)), sum(k) FROM {source}",
        "SELECT a, max(CAST(s AS DATE)) FROM {source} GROUP BY a",
        "SELECT CAST(s AS DATE) AS d, count(*) FROM {source} GROUP BY d",
    ],
)
def test_an_error_that_reading_has_too(con, source, mode, query):
    text = query.format(source=source, filter=FILTER)
    for tried in ("never", mode):
        with pytest.raises(duckdb.ConversionException, match="nonsense"):
            rows_of(con, tried, text)


def test_a_partial_aggregate_that_fails_in_an_osd_only(con, data_prefix):
    """The sum overflows in the second object, and not after the first one: what has failed is read last."""
    large = 9 * 10**37
    for part, values in enumerate(((-large,), (large, large))):
        rows = ", ".join(f"({value}::DECIMAL(38,0))" for value in values)
        con.execute(f"COPY (SELECT v FROM (VALUES {rows}) t(v)) TO '{data_prefix}/{part}.parquet'")
    source = f"read_parquet('{data_prefix}/*.parquet')"
    query = f"SELECT sum(v), count(*) FROM {source}"
    expected = [(large, 3)]
    assert rows_of(con, "never", query) == expected
    assert rows_of(con, "always", query) == expected
    scan = last_scan(con, source)
    assert scan["fell_back"] >= 1
    assert "an expression failed: Out of Range Error" in scan["fallback_reasons"]


def test_what_has_failed_is_read_last(con, data_prefix):
    """The answer about the second object, a small one, comes first. A row of the first one ends the scan."""
    rows = (
        "(DATE '1970-01-01' + i::INTEGER % 20000)::VARCHAR AS s FROM range(1000000) r(i)",
        "'nonsense' AS s",
    )
    for part, select in enumerate(rows):
        con.execute(f"COPY (SELECT {select}) TO '{data_prefix}/{part}.parquet' (FORMAT parquet)")
    con.execute("CREATE TABLE nothing AS FROM range(0)")
    con.execute("SET preserve_insertion_order = false")
    source = f"read_parquet('{data_prefix}/*.parquet')"
    query = f"SELECT s FROM {source}, nothing WHERE CAST(s AS DATE) > DATE '1960-01-01'"
    for mode in ("never", "always"):
        assert rows_of(con, mode, query) == []
    assert last_scan(con, source)["offloaded"]


def test_no_more_objects_are_asked(con, source):
    con.execute("SET rados_offload_in_flight = 1")
    before = requests(con, "exec")
    with pytest.raises(duckdb.ConversionException):
        rows_of(con, "always", f"SELECT count(*) FROM {source} WHERE {FILTER}")
    reasons = last_scan(con, source)["fallback_reasons"]
    assert "not asked, because an expression has failed on another object" in reasons
    # What is repeated because it is not finished yet counts, too.
    pushed = requests(con, "exec") - before
    with pytest.raises(duckdb.ConversionException):
        rows_of(con, "auto", f"SELECT count(*) FROM {source} WHERE {FILTER}")
    assert requests(con, "exec") == before + pushed
    scan = last_scan(con, source)
    assert not scan["offloaded"]
    assert scan["why"] == "an expression of it has failed in an OSD in the last minute"


def test_explain_analyze_says_why_objects_are_read(con, source):
    query = f"EXPLAIN ANALYZE SELECT k, x FROM {source}, nothing WHERE {FILTER}"
    plan = rows_of(con, "always", query)[0][1]
    assert "Answered by OSDs: 0" in plan
    assert "Read instead" in plan
    assert FAILED in " ".join(plan.replace("│", "").split())
    assert FAILED in last_scan(con, source)["fallback_reasons"]
    assert one(con, "SELECT count(*) FROM nothing") == 0
