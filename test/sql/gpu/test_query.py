"""gpu.query gives what connection.execute gives, in the same order, and leaves nothing behind."""

from __future__ import annotations

import datetime
import decimal
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import duckdb
import nanoarrow.device
import numpy
import pytest
import rawduck
from gpu_support import NULLS, ROWS, TYPES, columns_of, comparable, numbers_of, queried
from rawduck import gpu

MIB = 1 << 20
MANY = 300_000
ENDLESS = "SELECT i FROM range(1000000000000) r(i)"


pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def threads(con):
    """The connection, with 8 threads, and a table of many row groups."""
    con.execute("SET threads = 8; ATTACH ':memory:' AS m (ROW_GROUP_SIZE 8192); USE m")
    con.execute(f"CREATE TABLE t AS SELECT i, hash(i) AS h, 'text ' || i AS s FROM range({MANY}) r(i)")
    return con


def fetched(connection, query, params=None) -> list[list]:
    rows = connection.execute(query, params or []).fetchall()
    return [comparable(list(column)) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("type_name", TYPES)
def test_every_type_and_pattern_of_nulls(con, type_name):
    for nulls in NULLS.values():
        case = f"CASE WHEN NOT ({nulls}) THEN {TYPES[type_name]} END"
        query = f"SELECT {case} AS x FROM range({ROWS}) r(i)"
        assert queried(con, query) == fetched(con, query)


def test_vectors_of_every_form(con):
    """Constants, dictionaries and sequences; NULL from the first row on, and only late."""
    query = """SELECT 7 AS same, NULL::INTEGER AS nothing, i, e::VARCHAR AS word, 'x' AS text,
        CASE WHEN i > 5000 THEN NULL ELSE i END AS late,
        CASE WHEN i > 5000 THEN 'long enough text' END AS early
        FROM range(9000) r(i) JOIN (SELECT (['one', 'two', 'three'])[k + 1] AS e, k FROM range(3) q(k))
        ON i % 3 = k WHERE i % 7 <> 3 ORDER BY i"""
    assert queried(con, query) == fetched(con, query)


@pytest.mark.parametrize(
    "query",
    [
        "FROM t",
        "SELECT s, h FROM t ORDER BY h",
        "SELECT i FROM t WHERE h % 3 = 0 LIMIT 70000 OFFSET 12345",
        "SELECT i % 1000 AS k, count(*) AS n, sum(h)::DOUBLE AS x FROM t GROUP BY k ORDER BY k",
        "SELECT a.i, b.s FROM t a JOIN t b ON a.i = b.i - 1 ORDER BY a.i DESC LIMIT 90000",
    ],
)
@pytest.mark.parametrize("batch_rows", [1_000, 65_537, 10**7])
def test_order_is_kept_over_many_threads(threads, query, batch_rows):
    assert queried(threads, query, batch_rows=batch_rows) == fetched(threads, query)


def test_without_an_order_the_same_rows_come(threads):
    threads.execute("SET preserve_insertion_order = false")
    (found,) = queried(threads, "SELECT i FROM t WHERE i % 2 = 0")
    assert sorted(found) == list(range(0, MANY, 2))


def test_batches_have_the_rows_that_were_asked_for(threads):
    sizes = [len(batch) for batch in gpu.query(threads, "FROM t", batch_rows=70_001)]
    assert sizes == [70_001] * 4 + [MANY - 4 * 70_001]


def test_an_empty_result_has_no_batch(con):
    assert list(gpu.query(con, "SELECT 1 AS x WHERE false")) == []
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_parameters(con):
    values = [7, "text", None, 1.5, decimal.Decimal("2.25"), datetime.date(2020, 1, 2), True, b"\x00\xff"]
    query = "SELECT ? AS a, ? AS b, ?::INTEGER AS c, ? AS d, ? AS e, ? AS f, ? AS g, ? AS h"
    assert queried(con, query, values) == fetched(con, query, values)
    assert queried(con, "SELECT $2 AS b, $1 AS a", [1, 2]) == [[2], [1]]
    assert queried(con, "SELECT $first || $Other AS x", {"first": "a", "other": "b'c"}) == [["ab'c"]]
    assert queried(con, "SELECT 1 AS x", []) == [[1]]


@pytest.mark.parametrize(
    ("query", "params", "error", "message"),
    [
        ("SELECT * FROM missing", None, duckdb.CatalogException, "Catalog Error: Table with name missing"),
        ("SELEC 1", None, duckdb.ParserException, "syntax error"),
        ("SELECT x", None, duckdb.BinderException, "x"),
        ("", None, duckdb.InvalidInputException, "NULL or empty"),
        (" -- nothing", None, duckdb.InvalidInputException, "no statement"),
        ("SELECT 1; SELECT 2", None, duckdb.InvalidInputException, "one statement, and these are several"),
        ("CREATE TABLE made (i INTEGER)", None, duckdb.InvalidInputException, "this is CREATE"),
        ("INSERT INTO u VALUES (9) RETURNING *", None, duckdb.InvalidInputException, "this is INSERT"),
        ("PIVOT u ON i USING sum(i)", None, duckdb.InvalidInputException, "PIVOT whose ON has no IN"),
        ("SELECT [1] AS list", None, duckdb.InvalidInputException, "list is INTEGER.*cast it in the query"),
        ("SELECT INTERVAL 1 DAY AS d", None, duckdb.InvalidInputException, "d is INTERVAL"),
        ("SELECT true AS b", None, duckdb.InvalidInputException, "b is BOOLEAN.*cannot hold the value -1"),
        ("SELECT 1", [1], duckdb.InvalidInputException, "no parameters, and 1 values"),
        ("SELECT ?", None, duckdb.InvalidInputException, "Values were not provided"),
        ("SELECT ?, ?", [1], duckdb.InvalidInputException, "Values were not provided"),
    ],
)
def test_what_cannot_be_queried_is_refused_before_anything_runs(con, query, params, error, message):
    con.execute("CREATE TABLE u AS SELECT 1 AS i")
    with pytest.raises(error, match=message):
        gpu.query(con, query, params, nulls=-1)
    assert con.execute("FROM u").fetchall() == [(1,)]


def test_a_query_sees_what_its_connection_sees(con):
    con.execute("CREATE TEMPORARY TABLE temporary AS SELECT 1 AS i")
    con.execute("CREATE SCHEMA s; CREATE TABLE s.u AS SELECT 2 AS i; USE s")
    con.register("registered", con.sql("SELECT 3 AS i"))
    con.execute("BEGIN")
    con.execute("INSERT INTO u VALUES (4)")
    union = "FROM temporary UNION ALL FROM u UNION ALL FROM registered"
    assert queried(con, union) == [[1, 2, 4, 3]]
    con.execute("ROLLBACK")
    assert queried(con, "FROM u") == [[2]]


def test_an_open_query_holds_its_connection(threads):
    batches = gpu.query(threads, ENDLESS, batch_rows=1000)
    next(batches)
    with pytest.raises(duckdb.Error, match="open result"):
        threads.execute("SELECT 1")
    with pytest.raises(duckdb.Error, match="open result"):
        gpu.query(threads, "SELECT 1")
    with threads.cursor() as other:
        assert other.execute("SELECT 1").fetchall() == [(1,)]
    batches.close()
    assert threads.execute("SELECT 1").fetchall() == [(1,)]
    assert list(batches) == []


@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_error_in_the_middle_ends_the_query(threads, in_transaction):
    if in_transaction:
        threads.execute("BEGIN")
    batches = gpu.query(
        threads,
        "SELECT CASE WHEN i = 200000 THEN error('boom at ' || i)::INTEGER ELSE i END AS i FROM t",
        batch_rows=10_000,
    )
    with pytest.raises(duckdb.InvalidInputException, match="boom at 200000"):
        list(batches)
    assert list(batches) == []
    if in_transaction:
        threads.execute("ROLLBACK")
    assert threads.execute("SELECT 1").fetchall() == [(1,)]


def test_closing_early_leaves_no_query(threads):
    for how in ("close", "with", "drop", "break"):
        batches = gpu.query(threads, ENDLESS, batch_rows=100)
        if how == "close":
            batches.close()
        elif how == "with":
            with batches:
                next(batches)
        elif how == "break":
            for _ in batches:
                break
        del batches
        gc.collect()
        assert threads.execute("SELECT 1").fetchall() == [(1,)]


def test_an_exception_in_the_loop_closes(threads):
    def consume():
        with gpu.query(threads, ENDLESS, batch_rows=100) as batches:
            for batch in batches:
                assert len(batch) // 0

    with pytest.raises(ZeroDivisionError):
        consume()
    assert threads.execute("SELECT 1").fetchall() == [(1,)]


def test_closing_early_keeps_the_transaction(threads):
    threads.execute("BEGIN")
    threads.execute("INSERT INTO t VALUES (-1, 0, '')")
    with gpu.query(threads, "FROM t", batch_rows=100) as batches:
        next(batches)
    assert threads.execute("SELECT count(*) FROM t WHERE i = -1").fetchall() == [(1,)]
    threads.execute("COMMIT")


def test_batches_outlive_their_query(threads):
    with gpu.query(threads, "FROM t", batch_rows=1000) as batches:
        first = next(batches)
    threads.close()
    assert numbers_of(first["i"]).tolist() == list(range(1000))


def test_a_query_survives_its_connection(threads):
    batches = gpu.query(threads, "SELECT i FROM t", batch_rows=100_000)
    threads.close()
    assert columns_of(batches) == [list(range(MANY))]


def test_interrupted_by_another_thread(threads):
    query = "SELECT max(a.i + b.i) AS m FROM range(10_000_000) a(i), range(10_000_000) b(i)"
    batches = gpu.query(threads, query)
    timer = threading.Timer(0.3, threads.interrupt)
    timer.start()
    with pytest.raises(duckdb.InterruptException):
        next(batches)
    timer.join()
    assert threads.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("in_transaction", [False, True])
def test_ctrl_c_while_a_batch_is_computed(threads, in_transaction):
    """No thread has anything to hand over, so none waits: they are stopped amid their work."""
    if in_transaction:
        threads.execute("BEGIN; DELETE FROM t WHERE i > 0")
    query = "SELECT max(a.i + b.i) AS m FROM range(10_000_000) a(i), range(10_000_000) b(i)"
    batches = gpu.query(threads, query)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert time.monotonic() - begin < 20
    timer.join()
    assert threads.execute("SELECT count(*) FROM t").fetchall() == [(1 if in_transaction else MANY,)]
    assert list(batches) == []


def test_one_thread_suffices(con):
    con.execute("SET threads = 1")
    query = "SELECT i, 'text ' || i AS s FROM range(500_000) r(i) ORDER BY i DESC"
    assert queried(con, query, batch_rows=30_000) == fetched(con, query)


def test_python_functions_run_while_python_waits(threads):
    threads.create_function("twice", lambda i: i * 2, ["BIGINT"], "BIGINT")
    (found,) = queried(threads, "SELECT twice(i) AS i FROM range(10000) r(i)", batch_rows=1000)
    assert found == [2 * i for i in range(10000)]


def test_several_threads_share_a_query(threads):
    batches = gpu.query(threads, "SELECT i FROM t", batch_rows=10_000)
    found: list[int] = []

    def take():
        for batch in batches:
            found.extend(numbers_of(batch["i"]).tolist())

    takers = [threading.Thread(target=take) for _ in range(4)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert sorted(found) == list(range(MANY))


def test_the_report_says_what_was_done(threads):
    *_, batch = gpu.query(threads, "SELECT i, s FROM t", batch_rows=120_000)
    assert [(r["column"], r["route"], r["rows"]) for r in batch.report["routes"]] == [
        ("i", "query", 60_000),
        ("s", "query", 60_000),
    ]
    assert batch.report["bytes_read"] == batch.report["bytes_decoded"] == 0
    assert batch.report["bytes_copied"] >= 60_000 * (8 + 8)
    assert batch.report["milliseconds"] > 0


def test_threads_wait_for_who_takes_the_batches(threads):
    """What waits is bounded by DuckDB's setting, and a growing piece in each thread."""
    threads.execute("SET max_streaming_buffer_size = '16MiB'")
    with gpu.query(threads, "SELECT a.i, a.h FROM t a, range(1000)", batch_rows=50_000) as batches:
        for _ in range(20):
            batch = next(batches)
            time.sleep(0.01)
    peak = batch.report["peak_waiting_bytes"]
    assert MIB < peak < (2 * 16 + 8 * 2 * 2) * MIB


def test_few_rows_of_many_row_groups_hold_little(tmp_path):
    """Each row group ends a piece; while a batch is used, what the others hold is bounded, too."""
    with rawduck.connect() as connection:
        connection.execute(f"ATTACH '{tmp_path / 'g.db'}' AS g (ROW_GROUP_SIZE 2048); USE g; SET threads = 8")
        numbers = ", ".join(f"{number} AS c{number}" for number in range(50))
        connection.execute(f"CREATE TABLE t AS SELECT i, {numbers} FROM range(2048 * 1000) r(i)")
        batches = gpu.query(connection, "SELECT * FROM t WHERE i % 2048 = 7", batch_rows=1, device="emulated")
        batch = next(batches)
        time.sleep(2)
        for batch in batches:
            assert len(batch) == 1
        # 200 MiB in pieces of 4 KiB for each column, eight times as much in whole chunks.
        assert batch.report["peak_waiting_bytes"] < (10 + 8 * 2 + 8) * MIB


def test_memory_does_not_grow_with_the_result():
    """In a child, whose memory can be measured: gigabytes pass, and many queries are left half read."""
    program = """
        import os, resource
        os.environ["RAWDUCK_GPU"] = "emulated"
        import rawduck
        from rawduck import gpu
        connection = rawduck.connect()
        connection.execute("SET threads = 4; SET enable_progress_bar = false")
        query = "SELECT i, i * 2 AS j, 'some text of the row ' || i AS s FROM range(20_000_000) r(i)"
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        def read():
            return sum(len(batch) for batch in gpu.query(connection, query, batch_rows=100_000))
        def leave():
            with gpu.query(connection, query, batch_rows=100_000) as batches:
                next(batches)
        leave()
        for _ in range(5):
            leave()
        before = peak()
        rows = read()
        for _ in range(20):
            leave()
        print(rows, peak() - before < 100_000 or peak() - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.stdout.split() == ["20000000", "True"], result.stderr


def test_consumers(con):
    query = "SELECT i, CASE WHEN i % 2 = 0 THEN i END AS n, (i / 10)::DECIMAL(9, 2) AS d FROM range(10) r(i)"
    (batch,) = gpu.query(con, query)
    assert numbers_of(batch["i"]).tolist() == list(range(10))
    with pytest.raises(BufferError, match="5 NULLs"):
        numpy.from_dlpack(batch["n"])
    assert nanoarrow.device.c_device_array(batch).array.length == 10
    (batch,) = gpu.query(con, query, nulls=-1, decimal="int64")
    assert numbers_of(batch["n"]).tolist() == [i if i % 2 == 0 else -1 for i in range(10)]
    assert numbers_of(batch["d"]).tolist() == [10 * i for i in range(10)]


def test_names_that_occur_twice(con):
    (batch,) = gpu.query(con, "SELECT 1 AS a, 2 AS a")
    assert batch.column_names == ["a", "a_1"]
