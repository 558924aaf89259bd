"""Many threads on several databases of one volume, and handles that outlive their threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

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
