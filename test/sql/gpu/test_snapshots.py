"""Every scan equals SELECT in the same transaction, whatever that and other connections have done."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import textwrap
import threading
import time

import duckdb
import pytest
import rawduck
from gpu_support import columns_of, scanned, selected
from rawduck import gpu

SEEDS = range(int(os.environ.get("RAWDUCK_GPU_SEED", 0)), int(os.environ.get("RAWDUCK_GPU_SEED", 0)) + 4)
STEPS, SHORT_STEPS = 40, 12


pytestmark = pytest.mark.usefixtures("device")


def test_a_checkpoint_does_not_wait_for_an_open_scan(tmp_path):
    """Neither a commit's, nor an explicit one, nor one behind a transaction that a scan has outlived."""
    code = """
    con = rawduck.connect(sys.argv[1], config={"checkpoint_threshold": "100KB"})
    con.execute("CREATE TABLE t AS SELECT i FROM range(300000) r(i); CHECKPOINT")
    con.execute("CREATE TABLE result (x DOUBLE, s VARCHAR)")
    rows = 0
    for batch in gpu.scan(con, "t", batch_rows=100000):
        con.execute("INSERT INTO result SELECT hash(i)::DOUBLE, 'y' || hash(i) FROM range(20000) r(i)")
        con.execute("INSERT INTO t SELECT i FROM range(1000) r(i)")
        rows += len(batch)
    con.execute("BEGIN")
    left_open = gpu.scan(con, "t", batch_rows=1000)
    first = next(left_open)
    con.execute("COMMIT; INSERT INTO t SELECT i FROM range(200000) r(i); CHECKPOINT; FORCE CHECKPOINT")
    print(rows, len(first), con.execute("SELECT count(*) FROM t").fetchone()[0])
    """
    before = "import os, sys; os.environ['RAWDUCK_GPU'] = 'emulated'; import rawduck; from rawduck import gpu"
    command = [sys.executable, "-c", before + "\n" + textwrap.dedent(code), str(tmp_path / "t.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["300000", "1000", "503000"], done.stderr


class History:
    """Random statements on two connections, each of which compares scans with SELECT after every step."""

    def __init__(self, connection, seed):
        self.random = random.Random(seed)
        self.connections = [connection, connection.cursor()]
        self.connections[1].execute("USE d")
        self.in_transaction = [False, False]
        self.next_value = 0
        self.added = 0

    def values(self, rows):
        first, self.next_value = self.next_value, self.next_value + rows
        kind = self.random.choice(["hash(i)::BIGINT", "i", "i // 5000", "7"])
        return f"""SELECT {kind} AS a, CASE WHEN hash(i) % {self.random.choice([2, 5, 1000])} = 0 THEN NULL
            ELSE 'text ' || (i % {self.random.choice([3, 1000, 100000])}) END AS b,
            (i / 7)::DOUBLE AS c, (i % 2 = 0) AS d FROM range({first}, {first + rows}) r(i)"""

    def step(self, who):
        rows = self.random.choice([1, 100, 3000])
        span = f"rowid % {self.random.choice([2, 7, 1000])} = {self.random.randrange(2)}"
        statements = [
            f"INSERT INTO t (a, b, c, d) {self.values(rows)}",
            f"DELETE FROM t WHERE {span}",
            f"UPDATE t SET a = a + 1 WHERE {span}",
            "UPDATE t SET b = NULL WHERE rowid BETWEEN 100 AND 200",
            "CHECKPOINT",
            "BEGIN" if not self.in_transaction[who] else self.random.choice(["COMMIT", "ROLLBACK"]),
        ]
        if self.random.random() < 0.1 and not any(self.in_transaction):
            self.added += 1
            statements = [f"ALTER TABLE t ADD COLUMN e{self.added} INTEGER DEFAULT {self.added}"]
        self.run(who, self.random.choice(statements))

    def run(self, who, statement):
        try:
            self.connections[who].execute(statement)
        except duckdb.Error:  # a conflict, or a checkpoint while others read
            if self.in_transaction[who]:
                self.connections[who].execute("ROLLBACK")
                self.in_transaction[who] = False
            return
        if statement == "BEGIN":
            self.in_transaction[who] = True
        elif statement in ("COMMIT", "ROLLBACK"):
            self.in_transaction[who] = False

    def compare(self, who):
        connection = self.connections[who]
        batch_rows = self.random.choice([1000, 5000, 10**7])
        if self.random.random() < 0.5:
            assert scanned(connection, batch_rows=batch_rows) == selected(connection)
        else:
            assert scanned(connection, "t", ["b", "a"], batch_rows=batch_rows) == selected(
                connection, "t", "b, a"
            )


@pytest.mark.long
@pytest.mark.parametrize("place", ["file", "memory"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories(tmp_path, seed, place):
    run_history(tmp_path, seed, place, STEPS)


def test_a_short_random_history(tmp_path):
    run_history(tmp_path, SEEDS[-1] + 1, "file", SHORT_STEPS)


def run_history(tmp_path, seed, place, steps):
    memory = f"nvme://memory:history-{os.environ['RAWDUCK_GPU']}-{seed}/t.db"
    with rawduck.connect() as connection:
        connection.execute("SET checkpoint_threshold = '1GB'")  # only when the history says so
        path = memory if place == "memory" else tmp_path / "t.db"
        connection.execute(f"ATTACH '{path}' AS d (ROW_GROUP_SIZE 4096)")
        connection.execute("USE d")
        connection.execute("CREATE TABLE t (a BIGINT, b VARCHAR, c DOUBLE, d BOOLEAN)")
        history = History(connection, seed)
        history.run(0, f"INSERT INTO t {history.values(20_000)}")
        history.run(0, "CHECKPOINT")
        for _ in range(steps):
            who = history.random.randrange(2)
            history.step(who)
            if history.random.random() < 0.4:
                history.compare(who)
            if history.random.random() < 0.1:
                history.compare(1 - who)


@pytest.fixture
def table(tmp_path):
    with rawduck.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t AS SELECT hash(i) AS h, i FROM range(300_000) r(i)")
        connection.execute("CHECKPOINT")
        yield connection


def test_a_scan_outside_of_a_transaction_keeps_its_snapshot(table):
    expected = selected(table)
    batches = gpu.scan(table, "t", batch_rows=100_000)
    first = next(batches)
    table.execute("DELETE FROM t WHERE i % 2 = 0")
    table.execute("UPDATE t SET h = 0")
    table.execute("INSERT INTO t VALUES (1, 1)")
    assert columns_of([first, *batches]) == expected


def test_blocks_are_leased_while_a_scan_is_open(table, tmp_path):
    """The table is dropped and other rows are written: no block of the scan is used before its end."""
    expected = selected(table)
    query = "SELECT DISTINCT block FROM gpu_segments('t') WHERE block IS NOT NULL"
    blocks = [block for (block,) in table.execute(query).fetchall()]

    def contents():
        with open(tmp_path / "t.db", "rb") as file:
            found = {}
            for block in blocks:
                file.seek(12288 + block * 262144)
                found[block] = file.read(262144)
            return found

    def write(name):
        table.execute(f"CREATE TABLE {name} AS SELECT hash(i + 7) AS h, i FROM range(600_000) r(i)")
        with contextlib.suppress(duckdb.Error):  # refused while a scan is open and rows were dropped
            table.execute("CHECKPOINT")

    before = contents()
    batches = gpu.scan(table, "t", batch_rows=100_000)
    first = next(batches)
    table.execute("DROP TABLE t")
    write("t2")
    write("t3")
    assert contents() == before
    assert columns_of([first, *batches]) == expected
    table.execute("CHECKPOINT")
    write("t4")
    write("t5")
    assert contents() != before


def test_memory_is_not_copied_from_when_it_belongs_to_others():
    """A volume in memory, of which the device copies where it lies: meanwhile files there are moved, and
    tables are written, dropped and written over."""
    volume = f"nvme://memory:moving-{os.environ['RAWDUCK_GPU']}"
    connection = rawduck.connect()
    connection.execute("SET nvme_memory_size = '256 MiB'")
    for name in ("a", "b"):
        connection.execute(f"ATTACH '{volume}/{name}.duckdb' AS {name}")
    rows = "SELECT hash(i + {0}) AS h, i FROM range(60_000) r(i)"
    for part in range(4):  # in turns, so that each has many extents
        for name in ("a", "b"):
            statement = "CREATE TABLE {1}.t AS " if part == 0 else "INSERT INTO {1}.t "
            connection.execute((statement + rows + "; CHECKPOINT {1}").format(part, name))
    expected = selected(connection, "a.t")
    failures, is_done = [], threading.Event()

    def disturb(cursor):
        try:
            while not is_done.is_set():
                cursor.execute(f"SELECT * FROM nvme_defragment('{volume}/a.duckdb')").fetchall()
                cursor.execute(
                    "CREATE OR REPLACE TABLE a.other AS SELECT hash(i) AS h FROM range(50_000) r(i)"
                )
                cursor.execute("DROP TABLE a.other; INSERT INTO b.t SELECT 1, 1 FROM range(20_000) r(i)")
                with contextlib.suppress(duckdb.Error):  # refused while a scan is open
                    cursor.execute("CHECKPOINT a; CHECKPOINT b")
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=disturb, args=[connection.cursor()])
    thread.start()
    try:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            with gpu.scan(connection, "a.t", batch_rows=30_000) as batches:
                found = columns_of(batches)
            assert found == expected
    finally:
        is_done.set()
        thread.join()
    assert not failures
    connection.close()


def test_a_checkpoint_works_again_when_the_scan_is_closed(table):
    table.execute("UPDATE t SET h = 1 WHERE i < 10")
    batches = gpu.scan(table, "t")
    batches.close()
    table.execute("CHECKPOINT")
    assert list(batches) == []


@pytest.mark.parametrize(
    ("before", "change"),
    [
        # Rows that no checkpoint has written: DuckDB scans them.
        ("INSERT INTO t SELECT 1, i FROM range(10) r(i); BEGIN", "DELETE FROM t WHERE i = 3"),
        # DuckDB writes a second change over the first one: its undo buffer does not grow.
        ("BEGIN; UPDATE t SET h = 1 WHERE i = 290_000", "UPDATE t SET h = 2 WHERE i = 290_000"),
    ],
)
def test_rows_that_the_transaction_changes_meanwhile_are_refused(table, before, change):
    table.execute(before)
    batches = gpu.scan(table, "t", batch_rows=100_000)
    next(batches)
    table.execute(change)
    with pytest.raises(rawduck.RawduckError, match="has changed rows since the scan"):
        list(batches)
    table.execute("ROLLBACK")


@pytest.mark.parametrize("change", ["SELECT 1", "UPDATE t SET h = 2 WHERE i = 250_000 AND h = 1"])
def test_what_the_transaction_has_changed_before_is_scanned(table, change):
    """A row group of others' changes and of its own; a statement that changes nothing changes nothing."""
    with table.cursor() as other:
        other.execute("UPDATE t SET h = 7 WHERE i BETWEEN 1000 AND 270_000")
    table.execute("BEGIN; UPDATE t SET h = NULL WHERE i = 290_000 OR i = 5")
    expected = selected(table)
    batches = gpu.scan(table, "t", batch_rows=100_000)
    first = next(batches)
    table.execute(change)
    assert columns_of([first, *batches]) == expected
    table.execute("ROLLBACK")


def test_rows_may_be_added_to_other_tables_meanwhile(table):
    table.execute("CREATE TABLE other AS FROM t LIMIT 10")
    table.execute("BEGIN; UPDATE t SET h = 1 WHERE i = 290_000; INSERT INTO other VALUES (1, 1)")
    expected = selected(table)
    batches = gpu.scan(table, "t", batch_rows=100_000)
    first = next(batches)
    table.execute("INSERT INTO other FROM t LIMIT 200_000")
    assert columns_of([first, *batches]) == expected
    table.execute("ROLLBACK")


def test_a_transaction_that_ends_before_its_scan_is_told_of(table):
    table.execute("INSERT INTO t SELECT 1, i FROM range(10) r(i)")
    table.execute("BEGIN")
    batches = gpu.scan(table, "t", batch_rows=100_000)
    next(batches)
    table.execute("COMMIT")
    with pytest.raises(rawduck.RawduckError, match="is over"):
        list(batches)


def test_rows_of_the_transaction_are_those_of_the_beginning(table):
    table.execute("BEGIN")
    table.execute("INSERT INTO t SELECT 1, i FROM range(10) r(i)")
    expected = selected(table)
    batches = gpu.scan(table, "t")
    table.execute("INSERT INTO t SELECT 2, i FROM range(10) r(i)")
    assert columns_of(batches) == expected
    table.execute("ROLLBACK")


def test_a_temporary_table_needs_a_transaction(con):
    con.execute("CREATE TEMPORARY TABLE temporary AS SELECT i FROM range(10) r(i)")
    with pytest.raises(duckdb.Error, match="begin a transaction"):
        gpu.scan(con, "temporary")
    con.execute("BEGIN")
    assert scanned(con, "temporary") == selected(con, "temporary")
    con.execute("COMMIT")


def test_a_scan_survives_the_connection(table):
    expected = selected(table)
    batches = gpu.scan(table, "t")
    table.close()
    assert columns_of(batches) == expected
