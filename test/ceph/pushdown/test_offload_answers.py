"""Pushed queries give the answers of read ones: what once differed, and what must not be pushed."""

from __future__ import annotations

import itertools

import duckdb
import pyarrow
import pytest
from ceph_support import one, rados, requests
from pyarrow import parquet

_numbers = itertools.count()
MODES = ["always", "shared", "auto", "filters"]


@pytest.fixture(params=MODES)
def pushing(con, request):
    con.execute(f"SET rados_offload = '{request.param}'")
    return con


def write(connection, path: str, query: str, options: str = "") -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet{options})")


def answers(connection, query: str) -> tuple[object, object]:
    """The rows pushed and read, in order; an error as its type."""
    mode = one(connection, "SELECT current_setting('rados_offload')")
    result = []
    for tried in (mode, "never"):
        connection.execute(f"SET rados_offload = '{tried}'")
        try:
            result.append(sorted(connection.execute(query).fetchall(), key=repr))
        except duckdb.Error as error:
            result.append(type(error))
    connection.execute(f"SET rados_offload = '{mode}'")
    return tuple(result)


def last_scan(connection) -> tuple[bool, str, str]:
    query = (
        "SELECT offloaded, why, coalesce(fallback_reasons, '') FROM rados_scans() ORDER BY scan DESC LIMIT 1"
    )
    return connection.execute(query).fetchone()


@pytest.fixture
def numbers(con, data_prefix):
    """Three objects of 1000 rows with columns of many kinds."""
    for part in range(3):
        write(
            con,
            f"{data_prefix}/{part}.parquet",
            "SELECT i, i % 7 AS k, (i % 11 + 5)::BIGINT AS narrow, i / 7 AS d, (i / 4)::DECIMAL(9,2) AS m, "
            "'1' || (i % 5)::VARCHAR || '-phone' AS phone, DATE '2019-01-01' + (i % 1500)::INTEGER AS dt, "
            "TIMESTAMP '2020-01-01' + INTERVAL (i) MINUTE AS ts, encode('é' || (i % 3)) AS b "
            f"FROM range({part * 1000}, {part * 1000 + 1000}) r(i)",
        )
    return f"read_parquet('{data_prefix}/*.parquet')"


@pytest.mark.parametrize(
    "group",
    [
        "CASE WHEN i > 110 THEN '1' ELSE '2' END",
        "CASE WHEN i > 110 THEN 'A' ELSE 'B' END",
        "CASE WHEN i > 110 THEN '2023' ELSE '2024' END",
        "CASE WHEN i > 110 THEN '1' ELSE '2024' END",
        "CASE WHEN k IN (1, 2, 3) THEN 'few' END",
        "substring(phone, 1, 1)",
        "left(phone, 2)",
        "substring(CAST(dt AS VARCHAR), 1, 4)",
        "year(dt)",
        "narrow",
        "k",
        "i % 3 = 0",
        "date_trunc('month', ts)",
    ],
)
@pytest.mark.parametrize("threads", [1, 4])
def test_groups_that_the_optimizer_compresses(pushing, numbers, group, threads):
    pushing.execute(f"SET threads = {threads}")
    for query in (
        f"SELECT {group} AS g, count(*), sum(i), avg(m), min(phone) FROM {numbers} GROUP BY g",
        f"SELECT DISTINCT {group} FROM {numbers}",
        f"SELECT {group} AS g, sum(m) FROM {numbers} WHERE k <> 3 GROUP BY g ORDER BY g LIMIT 3",
        f"SELECT {group} AS g, i FROM {numbers} ORDER BY g DESC, i LIMIT 7",
    ):
        pushed, read = answers(pushing, query)
        assert pushed == read, query


def test_compressed_groups_are_pushed(con, numbers):
    """They are grouped in the OSDs by what they were before the optimizer has compressed them."""
    con.execute("SET rados_offload = 'always'")
    for group in ("CASE WHEN i > 110 THEN '2023' ELSE '2024' END", "year(dt)", "narrow", "left(phone, 1)"):
        con.execute(f"SELECT {group} AS g, sum(m) FROM {numbers} GROUP BY g").fetchall()
        row = con.execute("SELECT offloaded, pushed, fell_back FROM rados_scans() ORDER BY scan DESC LIMIT 1")
        offloaded, text, fell_back = row.fetchone()
        assert offloaded, group
        assert "GROUP BY 1" in text, group
        assert fell_back == 0, group


def test_timestamps_are_compared_in_the_osds(con, numbers):
    con.execute("SET rados_offload = 'always'")
    query = (
        f"SELECT count(*) FROM {numbers} WHERE ts >= TIMESTAMP '2020-01-02' AND ts < '2020-01-02 12:00:00'"
    )
    pushed, read = answers(con, query)
    assert pushed == read == [(720,)]
    text = one(con, "SELECT pushed FROM rados_scans() ORDER BY scan DESC LIMIT 1")
    assert "TIMESTAMP" in text


#: A setting, a value that changes what expressions mean, and a query that shows it.
SETTINGS = [
    ("binary_as_string", "true", "SELECT max(b), count(*) FROM {} WHERE b > 'b'"),
    ("integer_division", "true", "SELECT sum(i / 2) FROM {}"),
    ("ieee_floating_point_ops", "false", "SELECT count(*) FROM {} WHERE (i + 1) / k > 5"),
    ("error_on_division_by_zero", "false", "SELECT sum(i % k), sum(i // k) FROM {}"),
    ("default_collation", "nocase", "SELECT count(*) FROM {} WHERE phone = '12-PHONE'"),
    ("disabled_optimizers", "filter_pushdown", "SELECT count(*) FROM {} WHERE k = 3"),
]


@pytest.mark.parametrize(("setting", "value", "query"), SETTINGS)
def test_settings_that_change_the_meaning(pushing, numbers, setting, value, query):
    pushing.execute(f"SET {setting} = '{value}'")
    pushed, read = answers(pushing, query.format(numbers))
    assert pushed == read
    if isinstance(pushed, list):
        offloaded, why, _ = last_scan(pushing)
        assert not offloaded
        assert setting in why


@pytest.mark.parametrize("value", ["binary", "C", "posix"])
def test_names_of_no_collation_are_pushed(con, numbers, value):
    con.execute("SET rados_offload = 'always'")
    con.execute(f"SET default_collation = '{value}'")
    for query in (
        "SELECT count(*), min(phone), max(phone) FROM {} WHERE phone > '12-PHONE'",
        "SELECT phone, count(*) FROM {} WHERE phone LIKE '1%' GROUP BY phone",
        "SELECT phone, i FROM {} ORDER BY phone DESC, i LIMIT 5",
    ):
        pushed, read = answers(con, query.format(numbers))
        assert pushed == read
        offloaded = "SELECT bool_or(offloaded) FROM (FROM rados_scans() ORDER BY scan DESC LIMIT 2)"
        assert one(con, offloaded), query


def test_a_setting_of_which_nothing_is_known(con, numbers):
    """The default is pushed, whether it is set or not; every setting of DuckDB is known (proof_test.cpp)."""
    con.execute("SET rados_offload = 'always'")
    for value, pushed in (("'gregorian'", True), ("'japanese'", False)):
        con.execute(f"SET Calendar = {value}")
        con.execute(f"SELECT count(*) FROM {numbers} WHERE k = 3").fetchall()
        offloaded, why, _ = last_scan(con)
        assert offloaded == pushed
        assert ("Calendar" in why) != pushed
    con.execute("SET Calendar = 'gregorian'")
    con.execute("SET memory_limit = '1GB'")
    con.execute("SET preserve_insertion_order = false")
    con.execute(f"SELECT count(*) FROM {numbers} WHERE k = 3").fetchall()
    assert last_scan(con)[0]


#: The type of the first object, that of another one, values of it, and whether an OSD may cast it.
STORED_TYPES = [
    ("BIGINT", "INTEGER", "7", True),
    ("BIGINT", "UINTEGER", "4000000000", True),
    ("DECIMAL(18,4)", "DECIMAL(9,2)", "1.25", True),
    ("DOUBLE", "FLOAT", "1.5", True),
    ("INTEGER", "BIGINT", "7", False),
    ("UBIGINT", "DOUBLE", "1.8446744073709552e19", False),
    ("INTEGER", "DOUBLE", "1.6", False),
    ("DOUBLE", "BIGINT", "9007199254740993", False),
    ("VARCHAR", "DATE", "'2020-02-02'", False),
    ("DATE", "VARCHAR", "'2020-02-02'", False),
    ("TIMESTAMP", "TIMESTAMPTZ", "'2020-02-02 20:00:00+00'", False),
    ("TIMESTAMP", "DATE", "'2020-02-02'", False),
    ("DECIMAL(9,2)", "DECIMAL(18,4)", "1.2550", False),
]


@pytest.mark.parametrize(("first", "other", "value", "cast"), STORED_TYPES)
def test_objects_of_other_types(pushing, data_prefix, first, other, value, cast):
    pushing.execute("SET TimeZone = 'Asia/Kolkata'") if "TIMESTAMPTZ" in other else None
    write(pushing, f"{data_prefix}/a.parquet", f"SELECT NULL::{first} AS v, 1 AS i FROM range(3)")
    write(pushing, f"{data_prefix}/b.parquet", f"SELECT {value}::{other} AS v, 2 AS i FROM range(5000)")
    source = f"read_parquet('{data_prefix}/*.parquet')"
    for query in (
        f"SELECT i FROM {source} WHERE v IS NOT NULL",
        f"SELECT v::VARCHAR, count(*) FROM {source} GROUP BY ALL",
        f"SELECT min(v)::VARCHAR, max(v)::VARCHAR, count(v) FROM {source}",
        f"SELECT v::VARCHAR FROM {source} WHERE i = 2",
    ):
        pushed, read = answers(pushing, query)
        assert pushed == read, query
    if one(pushing, "SELECT current_setting('rados_offload')") == "always":
        answers(pushing, f"SELECT count(v) FROM {source}")
        offloaded, _, reasons = last_scan(pushing)
        assert offloaded
        assert ("stored as" in reasons) != cast


def test_a_column_that_one_object_lacks(pushing, data_prefix):
    write(pushing, f"{data_prefix}/a.parquet", "SELECT 1 AS v, 2 AS w")
    write(pushing, f"{data_prefix}/b.parquet", "SELECT 1 AS v")
    source = f"read_parquet('{data_prefix}/*.parquet')"
    pushed, read = answers(pushing, f"SELECT sum(w) FROM {source}")
    assert pushed == read
    pushed, read = answers(pushing, f"SELECT sum(v) FROM {source}")
    assert pushed == read == [(2,)]


@pytest.mark.parametrize(
    ("name", "type_name"),
    [
        ("filename", "VARCHAR"),
        ("file_index", "UBIGINT"),
        ("file_row_number", "BIGINT"),
        ("file_row_group_number", "UBIGINT"),
        ("current_date", "DATE"),
        ("user", "VARCHAR"),
    ],
)
def test_a_column_that_only_seems_to_be_in_an_object(pushing, data_prefix, name, type_name):
    """The reader and the binder know these names where an object has no such column."""
    write(pushing, f"{data_prefix}/a.parquet", f'SELECT NULL::{type_name} AS "{name}", 1 AS x')
    write(pushing, f"{data_prefix}/b.parquet", "SELECT 1 AS x FROM range(3)")
    for query in ('SELECT x, max("{}") FROM {} GROUP BY x', 'SELECT "{}" IS NULL, x FROM {}'):
        pushed, read = answers(pushing, query.format(name, f"read_parquet('{data_prefix}/*.parquet')"))
        assert pushed == read == duckdb.InvalidInputException


def test_a_field_that_seems_to_be_a_column(pushing, data_prefix):
    write(pushing, f"{data_prefix}/a.parquet", "SELECT 1 AS x")
    write(pushing, f"{data_prefix}/b.parquet", "SELECT {'x': 5} AS object, 7 AS y")
    pushed, read = answers(pushing, f"SELECT sum(x) FROM read_parquet('{data_prefix}/*.parquet')")
    assert pushed == read == duckdb.InvalidInputException


def test_a_value_for_each_row_decides_in_the_osds(con, numbers):
    """Aggregates of conditions, and constants that have no plain form in SQL."""
    con.execute("SET rados_offload = 'always'")
    for expression in (
        "bool_and(k < 6), bool_or(k > 5) FILTER (WHERE i > 100)",
        "count(*) FILTER (WHERE ts > TIMESTAMP_NS '2020-01-02 00:00:00.000000001')",
        "sum(k) FILTER (WHERE phone > 'a''b' OR phone < chr(0) OR d < 'inf'::DOUBLE)",
        "count(*) FILTER (WHERE dt >= DATE '2019-02-01' AND dt < DATE '2019-03-01')",
        "sum(k + 1::TINYINT), sum(m * 1.005), min((d + 1) / -0.0::DOUBLE)",
    ):
        pushed, read = answers(con, f"SELECT {expression} FROM {numbers}")
        assert pushed == read, expression
        row = con.execute("SELECT offloaded, fell_back FROM rados_scans() ORDER BY scan DESC LIMIT 1")
        assert row.fetchone() == (True, 0), expression


@pytest.mark.parametrize("column", ["i", "narrow", "d", "m", "phone", "dt", "ts", "b"])
def test_keys_of_joins(pushing, numbers, column):
    """Ranges and lists of keys of all kinds."""
    pushing.execute(f"CREATE TABLE keys AS SELECT DISTINCT {column} FROM {numbers} WHERE i % 401 = 7")
    pushed, read = answers(pushing, f"SELECT i, {column} FROM {numbers} JOIN keys USING ({column})")
    assert pushed == read
    assert pushed


@pytest.mark.parametrize("type_name", ["DECIMAL(38,0)", "HUGEINT"])
def test_sums_that_overflow_in_one_object_only(pushing, data_prefix, type_name):
    for name, sign in (("a", ""), ("b", "-")):
        query = f"SELECT ({sign}9{'0' * 37})::{type_name} AS v FROM range(2)"
        write(pushing, f"{data_prefix}/{name}.parquet", query)
    pushing.execute("SET threads = 1")
    pushed, read = answers(pushing, f"SELECT sum(v), avg(v) FROM read_parquet('{data_prefix}/*.parquet')")
    assert pushed == read


def test_averages_of_groups_that_overflow(pushing, data_prefix):
    """DuckDB adds up the values of a group in 128 bits, and fails where they do not fit."""
    for name in ("a", "b"):
        query = f"SELECT 1 AS g, 9{'0' * 37}::DECIMAL(38,0) AS v"  # Parquet has HUGEINT as DOUBLE
        write(pushing, f"{data_prefix}/{name}.parquet", query)
    source = f"read_parquet('{data_prefix}/*.parquet')"
    pushed, read = answers(pushing, f"SELECT g, avg(v) FROM {source} GROUP BY g")
    assert pushed == read == duckdb.OutOfRangeException


def test_a_users_function_with_the_name_of_one_of_duckdb(pushing, data_prefix):
    """It is another overload, which OSDs do not have: they would call the one of DuckDB."""
    rows = "SELECT 'abc' AS s, 1::INTEGER AS i, 1::INTEGER AS n, 1::BIGINT AS wide FROM range(10)"
    write(pushing, f"{data_prefix}/a.parquet", rows)
    parameters = ["VARCHAR", "INTEGER", "INTEGER"]
    pushing.create_function("substring", lambda s, i, n: "X", parameters, "VARCHAR")
    source = f"read_parquet('{data_prefix}/*.parquet')"
    pushed, read = answers(pushing, f"SELECT count(*) FROM {source} WHERE substring(s, i, n) = 'X'")
    assert pushed == read == [(10,)]
    own = f"SELECT count(*) FROM {source} WHERE substring(s, wide, wide) = 'a'"
    pushed, read = answers(pushing, own)
    assert pushed == read == [(10,)]
    if one(pushing, "SELECT current_setting('rados_offload')") == "always":
        pushing.execute(own).fetchall()
        assert "substring" in one(pushing, "SELECT pushed FROM rados_scans() ORDER BY scan DESC LIMIT 1")


def test_an_empty_object_of_another_program(con, cluster, data_prefix, tmp_path):
    """PyArrow writes a row group without rows, whose column chunks lie nowhere."""
    empty = tmp_path / "empty.parquet"
    parquet.write_table(pyarrow.table({"v": pyarrow.array([], pyarrow.int64())}), empty)
    pool, _, name = f"{data_prefix}/b.parquet".removeprefix("rados://").partition("/")
    rados(cluster, "-p", pool, "put", name, "-", data=empty.read_bytes())
    write(con, f"{data_prefix}/a.parquet", "SELECT i AS v FROM range(10) r(i)")
    con.execute("SET rados_offload = 'always'")
    source = f"read_parquet('{data_prefix}/*.parquet')"
    for query in (
        f"SELECT count(*), sum(v) FROM {source}",
        f"SELECT v FROM {source} WHERE v > 3",
        f"SELECT count(*) FROM '{data_prefix}/b.parquet'",
    ):
        pushed, read = answers(con, query)
        assert pushed == read, query
        assert isinstance(read, list)
        con.execute(query).fetchall()
        assert "corrupt" not in last_scan(con)[2]


def test_reading_in_place_of_an_osd_keeps_the_session(con, data_prefix):
    """An object that is read does not change the settings of the database."""
    write(con, f"{data_prefix}/a.parquet", "SELECT 1::INTEGER AS v")
    write(con, f"{data_prefix}/b.parquet", "SELECT 1::BIGINT AS v")
    con.execute("SET rados_offload = 'always'")
    settings = "SELECT name, value FROM duckdb_settings() WHERE name <> 'scan' ORDER BY name"
    before = con.execute(settings).fetchall()
    assert one(con, f"SELECT sum(v) FROM read_parquet('{data_prefix}/*.parquet')") == 2
    assert "stored as" in last_scan(con)[2]
    assert con.execute(settings).fetchall() == before
    with con.cursor() as other:
        assert other.execute(settings).fetchall() == [
            (name, "auto" if name == "rados_offload" else value) for name, value in before
        ]


def test_reading_in_place_of_an_osd_with_a_locked_configuration(con, data_prefix):
    write(con, f"{data_prefix}/a.parquet", "SELECT 1::INTEGER AS v")
    write(con, f"{data_prefix}/b.parquet", "SELECT 1::BIGINT AS v")
    con.execute("SET rados_offload = 'always'")
    con.execute("SET lock_configuration = true")
    assert one(con, f"SELECT sum(v) FROM read_parquet('{data_prefix}/*.parquet')") == 2
    assert "stored as" in last_scan(con)[2]


@pytest.fixture
def coded(con):
    """A prefix in a pool where no class can read: every object is read in place of an OSD."""
    con.execute("SET rados_offload = 'always'")
    return f"rados://coded/answers{next(_numbers)}"


def test_keys_of_joins_skip_rows_of_objects_that_are_read(con, coded):
    """As they do where nothing is pushed: row groups without the keys are not read."""
    text = "md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS text"
    for part in range(2):
        rows = f"range({part * 200000}, {part * 200000 + 200000}) r(i)"
        write(con, f"{coded}/{part}.parquet", f"SELECT i, {text} FROM {rows}", ", ROW_GROUP_SIZE 10000")
    con.execute("CREATE TABLE keys AS SELECT 345678::BIGINT AS i, 'one' AS k")
    query = f"SELECT k, text FROM read_parquet('{coded}/*.parquet') JOIN keys USING (i)"
    read_bytes = []
    for mode in ("never", "always"):
        con.execute(f"SET rados_offload = '{mode}'")
        before = requests(con, "read", "bytes")
        assert len(con.execute(query).fetchall()) == 1
        read_bytes.append(requests(con, "read", "bytes") - before)
    assert "cannot read in this pool" in last_scan(con)[2]
    assert read_bytes[1] < read_bytes[0] * 1.5 + 200_000


def test_what_a_filter_of_an_aggregate_leaves_out_is_evaluated(con, coded):
    """DuckDB evaluates the argument of every row. So do the OSDs, and what is read in place of them."""
    write(con, f"{coded}/a.parquet", "SELECT 'nonsense' AS s, 1 AS i UNION ALL SELECT '2020-01-01', 2")
    source = f"read_parquet('{coded}/*.parquet')"
    pushed, read = answers(con, f"SELECT max(CAST(s AS DATE)) FILTER (WHERE i = 2) FROM {source}")
    assert pushed == read == duckdb.ConversionException
    pushed, read = answers(
        con, f"SELECT max(s) FILTER (WHERE i = 2), count(s) FILTER (WHERE i < 2) FROM {source}"
    )
    assert pushed == read == [("2020-01-01", 1)]
    pushed, read = answers(con, f"SELECT count(*) FROM {source} WHERE i < 2")
    assert pushed == read == [(1,)]
