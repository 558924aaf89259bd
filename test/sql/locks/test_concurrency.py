"""Many threads on several databases of one volume, and handles that outlive their threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import duckdb
import rawduck
from support import attach, one

DATABASES = 4
WRITERS_EACH = 3
ROUNDS = 12
BATCH = 500


def write(con: duckdb.DuckDBPyConnection, name: str, writer: int) -> None:
    with con.cursor() as cursor:
        for round_number in range(ROUNDS):
            first = (writer * ROUNDS + round_number) * BATCH
            statement = (
                f"INSERT INTO {name}.t SELECT range, md5(range::VARCHAR) FROM range({first}, {first + BATCH})"
            )
            cursor.execute(statement)


def read(con: duckdb.DuckDBPyConnection, name: str, stop: threading.Event) -> int:
    """Every snapshot must consist of whole batches with the right content."""
    rounds = 0
    with con.cursor() as cursor:
        while not stop.is_set() or rounds == 0:
            count, wrong = cursor.execute(
                f"SELECT count(*), count(*) FILTER (s <> md5(v::VARCHAR)) FROM {name}.t"
            ).fetchone()
            assert count % BATCH == 0
            assert wrong == 0
            rounds += 1
    return rounds


def checkpoint(con: duckdb.DuckDBPyConnection, name: str, stop: threading.Event) -> None:
    with con.cursor() as cursor:
        while not stop.wait(0.05):
            try:
                cursor.execute(f"CHECKPOINT {name}")
            except duckdb.TransactionException:
                continue  # DuckDB's answer when a transaction is in the way


def test_writers_and_readers_on_several_databases(target):
    stop = threading.Event()
    total = WRITERS_EACH * ROUNDS * BATCH
    with rawduck.connect() as con, ThreadPoolExecutor(32) as pool:
        names = [attach(con, target, f"db{i}.duckdb") for i in range(DATABASES)]
        for name in names:
            con.execute(f"CREATE TABLE {name}.t (v BIGINT, s VARCHAR)")
        writers = [pool.submit(write, con, name, w) for name in names for w in range(WRITERS_EACH)]
        background = [pool.submit(read, con, name, stop) for name in names]
        background += [pool.submit(checkpoint, con, name, stop) for name in names]
        try:
            for writer in writers:
                writer.result()
        finally:
            stop.set()
        for future in background:
            future.result()
    with rawduck.connect() as con:
        for i in range(DATABASES):
            attach(con, target, f"db{i}.duckdb")
            query = f"SELECT count(*), count(DISTINCT v), count(*) FILTER (s <> md5(v::VARCHAR)) FROM db{i}.t"
            assert con.execute(query).fetchone() == (total, total, 0)
            con.execute(f"DETACH db{i}")
        assert one(con, "SELECT count(*) FROM nvme_check(?) WHERE severity = 'error'", target.name) == 0


def test_instances_come_and_go_while_others_work(target):
    """Volumes are shared by the instances of a process; one that closes takes nothing from the others."""
    with rawduck.connect(target.path("base.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT range AS v FROM range(10000)")

    def come_and_go(number: int) -> int:
        total = 0
        for _ in range(8):
            with rawduck.connect(target.path(f"own{number}.duckdb"), config={"threads": 2}) as con:
                con.execute("CREATE TABLE IF NOT EXISTS t (v BIGINT); INSERT INTO t VALUES (1)")
                con.execute(f"ATTACH '{target.path('base.duckdb')}' AS base (READ_ONLY)")
                assert one(con, "SELECT sum(v) FROM base.t") == 49995000
                total = one(con, "SELECT count(*) FROM t")
        return total

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(come_and_go, range(6))) == [8] * 6


def test_short_lived_threads(target, con):
    """Each thread owns its queue; hundreds of threads must not leave hundreds of queues behind."""
    attach(con, target, "x.duckdb")
    con.execute(
        "CREATE TABLE x.t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(100000); CHECKPOINT x"
    )
    path = target.path("out.parquet")
    con.execute(f"COPY x.t TO '{path}'")
    results = []

    def scan() -> None:
        with con.cursor() as cursor:
            results.append(cursor.execute(f"SELECT sum(v) FROM '{path}'").fetchone()[0])

    for _ in range(50):
        threads = [threading.Thread(target=scan) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [4999950000] * 400


def repeat(statement: str, stop: threading.Event, allowed: str = "nothing") -> int:
    """Goes on until it is told to stop. Only what is `allowed` may be refused."""
    rounds = 0
    with rawduck.connect() as con:
        while not stop.is_set() or rounds == 0:
            try:
                con.execute(statement).fetchall()
            except duckdb.Error as error:
                assert allowed in str(error)  # noqa: PT017
            rounds += 1
    return rounds


def test_attaching_waits_for_what_works_on_the_volume_beside_it(durable_target):
    """In one process they would meet each other's locks."""
    name = durable_target.name
    stop = threading.Event()
    open_here = "while something on it is open in this process"
    with ThreadPoolExecutor(4) as pool, rawduck.connect() as con:
        beside = [
            pool.submit(repeat, f"FROM nvme_check('{name}')", stop, open_here),
            pool.submit(repeat, f"FROM nvme_check('{name}', repair := true)", stop, open_here),
            pool.submit(repeat, f"FROM nvme_files('{name}')", stop),
        ]
        try:
            for number in range(15):
                attach(con, durable_target, "x.duckdb")
                con.execute(f"CREATE OR REPLACE TABLE x.t AS SELECT {number} AS v; DETACH x")
        finally:
            stop.set()
        assert all(each.result() > 0 for each in beside)
        attach(con, durable_target, "x.duckdb", "(READ_ONLY)")
        assert one(con, "SELECT v FROM x.t") == 14


def test_mounting_waits_for_a_format(durable_target):
    stop = threading.Event()
    query = f"CALL nvme_format('{durable_target.name}', force := true)"
    with ThreadPoolExecutor(1) as pool, rawduck.connect() as con:
        formatting = pool.submit(repeat, query, stop)
        try:
            for _ in range(20):
                assert con.execute("FROM nvme_files(?)", [durable_target.name]).fetchall() == []
        finally:
            stop.set()
        assert formatting.result() > 0


def test_of_two_that_make_a_volume_one_does(tmp_path):
    """The other is refused, and leaves what was made."""
    connections = [rawduck.connect(), rawduck.connect()]

    def make(connection, barrier, path, made):
        barrier.wait()
        with suppress(duckdb.Error):
            connection.execute("CALL nvme_format(?, size := '16M')", [path])
            made.append(connection)

    for number in range(20):
        path, barrier, made = str(tmp_path / f"v{number}.rawduck"), threading.Barrier(2), []
        threads = [threading.Thread(target=make, args=(c, barrier, path, made)) for c in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 1
        assert made[0].execute("FROM nvme_check(?) WHERE severity <> 'ok'", [path]).fetchall() == []
    for connection in connections:
        connection.close()
