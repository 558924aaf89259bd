"""A database in many pieces is laid into fewer: beside queries and commits, interrupted, killed, refused."""

from __future__ import annotations

import json
import re
import threading
import time

import duckdb
import pytest
from support import attach, failed, one, start_python, succeeded

UPDATE = "UPDATE {0}.t SET v = v + 1, s = md5(v::VARCHAR) WHERE i // 50000 = {1}; CHECKPOINT {0}"


def make_pieces(con, name: str = "x") -> None:
    con.execute(
        f"CREATE TABLE {name}.t AS SELECT range AS i, range AS v, md5(range::VARCHAR) AS s FROM range(600000)"
    )
    con.execute(f"CHECKPOINT {name}")
    for part in [(7 * number) % 12 for number in range(24)]:
        con.execute(UPDATE.format(name, part))


def extents(con, path: str) -> int:
    target, name = path.removeprefix("nvme://").rsplit("/", 1)
    return one(con, "SELECT extents FROM nvme_files(?) WHERE name = ?", target, name)


def answer(con, name: str = "x") -> tuple:
    return con.execute(f"SELECT count(*), sum(v), max(s), min(s) FROM {name}.t").fetchone()


@pytest.mark.parametrize("kind", ["memory-512", "file-4096", "loop-512"])
def test_a_database_in_use(new_target, con, kind):
    target = new_target(kind)
    path = target.path("x.duckdb")
    attach(con, target, "x.duckdb")
    make_pieces(con)
    before, expected = extents(con, path), answer(con)
    stop, failures = threading.Event(), []

    def read_and_write() -> None:
        cursor = con.cursor()
        try:
            cursor.execute("CREATE TABLE x.log (n BIGINT)")
            while not stop.is_set():
                cursor.execute("INSERT INTO x.log VALUES (1)")
                if answer(cursor) != expected:
                    failures.append(answer(cursor))
        except duckdb.Error as error:
            failures.append(error)

    thread = threading.Thread(target=read_and_write)
    thread.start()
    row = con.execute("SELECT * FROM nvme_defragment(?)", [path]).fetchone()
    stop.set()
    thread.join()
    assert not failures
    assert row[0] == "x.duckdb"
    assert row[1] == before > 8
    assert row[2] < before / 2
    assert row[3] > 0
    assert row[4:] == (0, 0)
    con.execute("DETACH x")
    found = con.execute("SELECT * FROM nvme_check(?) WHERE severity <> 'ok'", [target.name]).fetchall()
    assert found == []
    attach(con, target, "x.duckdb", "(READ_ONLY)")
    assert answer(con) == expected


def test_it_stops_at_once_and_is_killed_at_any_moment(new_target, con):
    target = new_target("file-4096")
    path = target.path("x.duckdb")
    attach(con, target, "x.duckdb")
    make_pieces(con)
    expected = answer(con)
    timer = threading.Timer(0.3, con.interrupt)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(duckdb.InterruptException):
        con.execute("SELECT * FROM nvme_defragment(?, rate := '1M')", [path]).fetchall()
    assert time.monotonic() - begin < 5
    assert answer(con) == expected
    con.execute("DETACH x")
    for moment in range(5):
        with start_python(
            "print('ready', flush=True)\n"
            f"connection.execute(\"SELECT * FROM nvme_defragment('{path}', rate := '8M')\").fetchall()\n"
        ) as child:
            assert child.stdout.readline().strip() == "ready"
            time.sleep(0.05 + 0.15 * moment)
            child.kill()
            child.wait()
        found = con.execute("SELECT * FROM nvme_check(?) WHERE severity = 'error'", [target.name]).fetchall()
        assert found == []
        attach(con, target, "x.duckdb", "(READ_ONLY)")
        assert answer(con) == expected
        con.execute("DETACH x")


def test_the_command_says_what_it_did_and_what_stayed(new_target, con):
    target = new_target("file-4096")
    path = target.path("x.duckdb")
    attach(con, target, "x.duckdb")
    make_pieces(con)
    con.execute("CALL nvme_snapshot(?, 'monday')", [path])
    con.execute("DETACH x")
    shown = succeeded("defragment", path)
    assert re.search(
        r"^[\d.]+ [KMG]iB in short pieces stayed: snapshots, clones or readers", shown, re.MULTILINE
    )
    con.execute("CALL nvme_drop_snapshot(?)", [path + "@monday"])
    row = json.loads(succeeded("defragment", path, "--rate", "200M", "--json"))
    assert row["extents"] < row["extents_before"]
    assert row["copied"] > 0
    again = succeeded("defragment", path)
    assert re.match(r"Defragmented x\.duckdb: \d+ extents before, \d+ now; [\d.]+ \w+ copied in ", again)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing.duckdb", 'no file "missing.duckdb" on this volume'),
        ("x.duckdb.wal", "it is a log"),
        ("x.duckdb@monday", "it is a snapshot"),
    ],
)
def test_what_it_refuses(new_target, con, name, why):
    target = new_target("memory-4096")
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t (i INT); CHECKPOINT x; INSERT INTO x.t VALUES (1)")
    con.execute("CALL nvme_snapshot(?, 'monday')", [target.path("x.duckdb")])
    with pytest.raises(duckdb.Error, match=re.escape(why)):
        con.execute("SELECT * FROM nvme_defragment(?)", [target.path(name)]).fetchall()


def test_a_bad_rate_or_path_is_refused(new_target, con):
    with pytest.raises(duckdb.Error, match="rate"):
        con.execute("SELECT * FROM nvme_defragment('nvme://memory:none/x.duckdb', rate := 'fast')").fetchall()
    assert "not a path on a volume" in failed("defragment", "/data/x.duckdb")
