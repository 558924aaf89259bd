"""What was committed survives the death of the process; what was not leaves no trace."""

from __future__ import annotations

import random
import time

import pytest
import rawduck
from support import CHILD_SECONDS, attach, one, start_python

WRITER = """
connection.execute("SET wal_autocheckpoint = '%s'")
connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
connection.execute("USE x")
connection.execute("CREATE TABLE IF NOT EXISTS t (n BIGINT, s VARCHAR)")
n = connection.execute("SELECT coalesce(max(n), -1) + 1 FROM t").fetchone()[0]
while True:
    connection.execute("BEGIN")
    connection.execute("INSERT INTO t SELECT ?, 'row ' || range FROM range(10)", [n])
    connection.execute("COMMIT")
    print(n, flush=True)
    n += 1
"""


def run_writer_and_kill(path: str, seconds: float, autocheckpoint: str) -> int:
    """Returns the last number whose commit the writer reported."""
    with start_python(WRITER % autocheckpoint, path) as child:
        first = child.stdout.readline()
        time.sleep(seconds)
        child.kill()
        output, errors = child.communicate(timeout=CHILD_SECONDS)
        assert first, errors
    return int(([first] + [line for line in output.splitlines(keepends=True) if line.endswith("\n")])[-1])


@pytest.mark.parametrize("autocheckpoint", ["1GB", "20KB"], ids=["from-wal", "amid-checkpoints"])
def test_committed_rows_survive_kill(durable_target, autocheckpoint):
    random.seed(1)
    for _ in range(4):
        last = run_writer_and_kill(durable_target.path("x.duckdb"), random.uniform(0.05, 0.5), autocheckpoint)
        with rawduck.connect() as con:
            attach(con, durable_target, "x.duckdb", "(READ_ONLY)")
            highest = one(con, "SELECT max(n) FROM x.t")
            # One commit may have become durable without its report getting out.
            assert highest in (last, last + 1)
            incomplete = "SELECT count(*) FROM (SELECT n FROM x.t GROUP BY n HAVING count(*) <> 10)"
            assert one(con, incomplete) == 0
            assert one(con, "SELECT count(DISTINCT n) FROM x.t") == highest + 1
            damage = "SELECT count(*) FROM nvme_check(?) WHERE severity <> 'ok'"
            assert one(con, damage, durable_target.name) == 0


def test_wal_is_replayed_and_then_gone(durable_target):
    run_writer_and_kill(durable_target.path("x.duckdb"), 0.2, "1GB")
    size = "SELECT coalesce(sum(size), 0) FROM nvme_files(?) WHERE name = 'x.duckdb.wal'"
    with rawduck.connect() as con:
        assert one(con, size, durable_target.name) > 0
        attach(con, durable_target, "x.duckdb")
        con.execute("CHECKPOINT x")
        rows = one(con, "SELECT count(*) FROM x.t")
        con.execute("DETACH x")
        assert one(con, size, durable_target.name) == 0
        attach(con, durable_target, "x.duckdb")
        assert one(con, "SELECT count(*) FROM x.t") == rows > 0


def test_uncommitted_rows_leave_no_trace(durable_target):
    code = """
    connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
    connection.execute("CREATE TABLE x.t AS SELECT range AS v FROM range(10)")
    connection.execute("BEGIN; INSERT INTO x.t SELECT range FROM range(2000000)")
    print("ready", flush=True)
    time.sleep(60)
    """
    with start_python(code, durable_target.path("x.duckdb")) as child:
        assert child.stdout.readline() == "ready\n"
        child.kill()
    with rawduck.connect() as con:
        attach(con, durable_target, "x.duckdb")
        assert con.execute("SELECT count(*), sum(v) FROM x.t").fetchone() == (10, 45)
