"""Objects without a key of a join are neither asked nor read, and answers are those of all objects."""

from __future__ import annotations

import duckdb
import pytest
from ceph_support import rados, requests
from rawduck.ceph.cluster import class_directory
from test_pruning import OBJECTS, OTHER_VALUES, VALUES, write_objects

MODES = ["always", "shared", "filters"]


@pytest.fixture(autouse=True)
def with_class():
    if class_directory() is None:
        pytest.skip("no object class: rados/objclass.h or libpython was missing when the package was built")


@pytest.fixture
def pushed(con):
    con.execute("SET rados_offload = 'always'")
    return con


def write_rows(connection, path: str, rows: str, options: str = "") -> None:
    connection.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet{options})")


def make_keys(connection, value: str, type_name: str, rows: str) -> None:
    """The keys of some of the rows, and NULL."""
    keys = f"SELECT ({value})::{type_name} AS v FROM (VALUES {rows}) AS r(i) UNION ALL SELECT NULL"
    connection.execute(f"CREATE OR REPLACE TEMP TABLE keys AS {keys}")


def outcome(connection) -> dict:
    """Of the last pushed scan."""
    columns = "objects, answered, fell_back, shared, pruned"
    result = connection.execute(
        f"SELECT {columns} FROM rados_scans() WHERE offloaded ORDER BY scan DESC LIMIT 1"
    )
    return dict(zip(columns.split(", "), result.fetchone(), strict=True))


def check(connection, query: str, source: str) -> int:
    """How many objects were pruned. `query`: with {} for the source; its rows are those of a copy."""
    connection.execute("SET rados_offload = 'never'")
    connection.execute(f"CREATE OR REPLACE TEMP TABLE copy AS FROM {source}")
    expected = connection.execute(query.format("copy")).fetchall()
    connection.execute("SET rados_offload = 'always'")
    connection.execute("CALL rados_reset_stats()")
    assert connection.execute(query.format(source)).fetchall() == expected
    scan = outcome(connection)
    assert scan["objects"] == scan["answered"] + scan["fell_back"] + scan["shared"] + scan["pruned"]
    if scan["pruned"] == scan["objects"]:
        assert requests(connection, "exec") == 0
    return scan["pruned"]


JOIN = "SELECT count(*), sum(s.i) FROM {} AS s JOIN keys AS k ON s.v = k.v"


#: Of few keys DuckDB makes a list, of many keys a map of the ranges in which they lie.
FEW, MANY = "(350), (399), (420)", ", ".join(f"({i})" for i in range(340, 420))


@pytest.mark.parametrize("type_name", [*VALUES, *OTHER_VALUES])
def test_answers_are_those_of_all_objects(pushed, data_prefix, type_name):
    value = {**VALUES, **OTHER_VALUES}[type_name]
    write_objects(pushed, data_prefix, value, type_name)
    for rows in (FEW, MANY):
        make_keys(pushed, value, type_name, rows)
        pruned = check(pushed, JOIN, f"read_parquet('{data_prefix}/*.parquet')")
        assert (pruned > 0) == (type_name in VALUES)


def test_keys_with_a_gap(pushed, data_prefix):
    """Objects between the smallest and the largest key have none of them."""
    write_objects(pushed, data_prefix, "i", "INTEGER")
    make_keys(pushed, "i", "INTEGER", ", ".join(f"({i})" for i in (*range(100), *range(700, 800))))
    assert check(pushed, JOIN, f"read_parquet('{data_prefix}/*.parquet')") == OBJECTS - 2


@pytest.mark.parametrize("mode", MODES)
def test_no_pruned_object_is_asked_or_read(con, data_prefix, mode):
    write_objects(con, data_prefix, "i", "INTEGER")
    make_keys(con, "i", "INTEGER", "(350), (360), (450)")
    con.execute(f"SET rados_offload = '{mode}'")
    con.execute("CALL rados_reset_stats()")
    rows = con.execute(JOIN.format(f"read_parquet('{data_prefix}/*.parquet')")).fetchall()
    assert rows == [(3, 350 + 360 + 450)]
    scan = outcome(con)
    assert (scan["objects"], scan["pruned"], scan["fell_back"]) == (OBJECTS, OBJECTS - 2, 0)
    assert scan["answered"] + scan["shared"] == 2


def test_all_objects_pruned(pushed, data_prefix):
    write_objects(pushed, data_prefix, "i", "INTEGER")
    make_keys(pushed, "i", "INTEGER", "(1000), (1001)")
    assert check(pushed, JOIN, f"read_parquet('{data_prefix}/*.parquet')") == OBJECTS


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*), count(k.v), sum(s.i) FROM {} AS s LEFT JOIN keys AS k ON s.v = k.v",
        "SELECT count(*), sum(s.i) FROM {} AS s ANTI JOIN keys AS k ON s.v = k.v",
        "SELECT count(*), sum(s.i) FROM {} AS s WHERE s.v NOT IN (SELECT v FROM keys WHERE v IS NOT NULL)",
        "SELECT count(*), sum(s.i) FROM {} AS s JOIN keys AS k ON s.v IS NOT DISTINCT FROM k.v",
        "SELECT count(*), sum(s.i) FROM {} AS s JOIN keys AS k ON s.v <> k.v",
        "SELECT count(*), sum(s.i) FROM {} AS s JOIN keys AS k ON s.v = -k.v + 1",
        "SELECT count(*), sum(s.i) FROM {} AS s JOIN keys AS k ON s.v = k.v OR s.i = k.v + 500",
        "SELECT count(*), sum(s.i) FROM {} AS s, keys AS k WHERE s.v + 300 = k.v",
        "SELECT count(*), sum(s.i) FROM {} AS s FULL JOIN keys AS k ON s.v = k.v",
    ],
)
def test_joins_that_keep_rows_without_a_key(pushed, data_prefix, query):
    """Whatever DuckDB tells the scan: rows with NULL in particular, which each object has."""
    write_objects(pushed, data_prefix, "i", "INTEGER")
    make_keys(pushed, "i", "INTEGER", "(350), (360)")
    check(pushed, query, f"read_parquet('{data_prefix}/*.parquet')")


def test_keys_that_are_not_a_number(pushed, data_prefix):
    """NaN equals NaN in DuckDB, and is outside of all bounds."""
    for number in range(3):
        write_rows(
            pushed,
            f"{data_prefix}/{number}.parquet",
            f"SELECT i, CASE WHEN i = {number}0 THEN 'NaN'::DOUBLE ELSE i END AS v "
            f"FROM range({number}0, {number}9) r(i)",
        )
    make_keys(pushed, "CASE WHEN i = 0 THEN 'NaN'::DOUBLE ELSE i END", "DOUBLE", "(0), (5)")
    assert check(pushed, JOIN, f"read_parquet('{data_prefix}/*.parquet')") == 0


def test_objects_that_store_another_type(pushed, data_prefix):
    """The bounds of a text or a smaller number do not count for the query's type."""
    write_rows(pushed, f"{data_prefix}/a.parquet", "SELECT i, i AS v FROM range(100) r(i)")
    write_rows(pushed, f"{data_prefix}/b.parquet", "SELECT i, i::VARCHAR AS v FROM range(100, 200) r(i)")
    write_rows(pushed, f"{data_prefix}/c.parquet", "SELECT i, i::SMALLINT AS v FROM range(200, 300) r(i)")
    write_rows(pushed, f"{data_prefix}/d.parquet", "SELECT i, i AS v FROM range(300, 400) r(i)")
    make_keys(pushed, "i", "BIGINT", "(20), (120), (220)")
    assert check(pushed, JOIN, f"read_parquet('{data_prefix}/*.parquet')") == 1


def test_statistics_of_replaced_content_do_not_count(pushed, cluster, data_prefix, tmp_path):
    """Another program replaces the content, with as many bytes, and keeps the attributes."""
    write_objects(pushed, data_prefix, "i", "INTEGER")
    rows = "SELECT i, i::INTEGER AS v FROM range({0}, {0} + 100) r(i)"
    plain = ", COMPRESSION uncompressed"
    write_rows(pushed, f"{data_prefix}/3.parquet", rows.format(300), plain)
    write_rows(pushed, f"{tmp_path}/new.parquet", rows.format(100300), plain)
    pool, _, name = f"{data_prefix}/3.parquet".removeprefix("rados://").partition("/")
    rados(cluster, "-p", pool, "put", name, "-", data=(tmp_path / "new.parquet").read_bytes())
    make_keys(pushed, "i", "INTEGER", "(100310), (100311)")
    # The recorded checksum of the footer is of the old content, too: no OSD answers, and the object is read.
    assert check(pushed, JOIN, f"read_parquet('{data_prefix}/*.parquet')") == OBJECTS - 1
    assert outcome(pushed)["fell_back"] == 1


def test_an_object_that_was_replaced_is_seen_anew(pushed, data_prefix):
    write_objects(pushed, data_prefix, "i", "INTEGER")
    make_keys(pushed, "i", "INTEGER", "(5000), (5001)")
    source = f"read_parquet('{data_prefix}/*.parquet')"
    assert check(pushed, JOIN, source) == OBJECTS
    write_rows(pushed, f"{data_prefix}/6.parquet", "SELECT i, i::INTEGER AS v FROM range(4990, 5010) r(i)")
    assert check(pushed, JOIN, source) == OBJECTS - 1


def test_an_object_that_is_replaced_meanwhile(pushed, data_prefix):
    """The first object is bound by its version, which must be the one whose statistics count."""
    write_objects(pushed, data_prefix, "i", "INTEGER")
    make_keys(pushed, "i", "INTEGER", "(50), (60)")
    pushed.execute("SET threads = 1")
    pushed.execute("SET streaming_buffer_size = '100KB'")
    source = f"read_parquet('{data_prefix}/*.parquet')"
    late = f"SELECT s.i FROM {source} AS s JOIN (SELECT v FROM keys WHERE v < 1000) AS k ON s.v = k.v"
    reader = pushed.execute(f"SELECT -1 AS i FROM range(3000000) UNION ALL {late}")
    assert reader.fetchone() == (-1,)
    with pushed.cursor() as other:
        write_rows(other, f"{data_prefix}/0.parquet", "SELECT i, i::INTEGER AS v FROM range(9000, 9100) r(i)")
    with pytest.raises(duckdb.IOException, match=r"0\.parquet.*replaced since"):
        reader.fetchall()


def test_an_object_that_is_gone(pushed, cluster, data_prefix):
    write_objects(pushed, data_prefix, "i", "INTEGER")
    make_keys(pushed, "i", "INTEGER", "(50), (60)")
    pool, _, name = f"{data_prefix}/3.parquet".removeprefix("rados://").partition("/")
    names = [f"{data_prefix}/{number}.parquet" for number in range(OBJECTS)]
    rados(cluster, "-p", pool, "rm", name)
    with pytest.raises(duckdb.IOException, match=r"3\.parquet"):
        pushed.execute(JOIN.format(f"read_parquet({names})")).fetchall()


def test_keys_of_several_joins(pushed, data_prefix):
    write_objects(pushed, data_prefix, "i", "INTEGER")
    make_keys(pushed, "i", "INTEGER", "(150), (350), (550)")
    pushed.execute("CREATE OR REPLACE TEMP TABLE others AS SELECT i FROM range(300, 360) r(i)")
    query = "SELECT count(*), sum(s.i) FROM {} AS s JOIN keys AS k ON s.v = k.v JOIN others AS o ON s.i = o.i"
    assert check(pushed, query, f"read_parquet('{data_prefix}/*.parquet')") >= OBJECTS - 3
