"""A full volume fails the statement, not the database."""

from __future__ import annotations

import duckdb
import pytest
import rawduck
from support import attach, file_names, kill_when_ready, one, run_python

LOAD = "INSERT INTO x.t SELECT range, md5(range::VARCHAR) FROM range(5000000)"


@pytest.fixture(params=["memory-512", "file-4096", "loop-512", "loop-4096"])
def small_target(request, new_target):
    return new_target(request.param, size="64M")


def test_statement_fails_and_committed_data_stays(small_target, con):
    attach(con, small_target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(100000)")
    con.execute("CHECKPOINT x")
    with pytest.raises(duckdb.Error, match=r"full.*(free|remove)"):
        con.execute(LOAD)
    assert con.execute("SELECT count(*), sum(v) FROM x.t").fetchone() == (100000, 4999950000)
    con.execute("DETACH x")
    attach(con, small_target, "x.duckdb")
    assert con.execute("SELECT count(*), count(DISTINCT s) FROM x.t").fetchone() == (100000, 100000)
    con.execute("DETACH x")
    assert one(con, "SELECT count(*) FROM nvme_check(?) WHERE severity <> 'ok'", small_target.name) == 0


def test_room_is_left_to_make_room(small_target, con):
    """However often the volume fills up, small commits and dropping the table go on working."""
    attach(con, small_target, "x.duckdb")
    con.execute("CREATE TABLE x.t (v BIGINT, s VARCHAR)")
    for _ in range(3):
        with pytest.raises(duckdb.Error, match="full"):
            con.execute(LOAD)
        con.execute("CHECKPOINT x; INSERT INTO x.t VALUES (-1, 'small'); CHECKPOINT x")
    assert one(con, "SELECT count(*) FROM x.t") == 3
    con.execute("DROP TABLE x.t; CHECKPOINT x; CREATE TABLE x.u AS SELECT range AS v FROM range(300000)")
    assert one(con, "SELECT sum(v) FROM x.u") == 44999850000
    con.execute("DETACH x")
    con.execute("SELECT * FROM nvme_remove(?)", [small_target.path("x.duckdb")])
    assert one(con, "SELECT used FROM nvme_info(?)", small_target.name) == 0


def test_other_databases_on_the_full_volume(small_target, con):
    """They can be read at once, and written as soon as the failed one gives its space back."""
    attach(con, small_target, "other.duckdb")
    con.execute("CREATE TABLE other.t AS SELECT range AS v FROM range(1000); CHECKPOINT other")
    attach(con, small_target, "x.duckdb")
    con.execute("CREATE TABLE x.t (v BIGINT, s VARCHAR)")
    with pytest.raises(duckdb.Error, match="full"):
        con.execute(LOAD)
    assert one(con, "SELECT sum(v) FROM other.t") == 499500
    con.execute("CHECKPOINT x; UPDATE other.t SET v = v + 1")
    assert one(con, "SELECT sum(v) FROM other.t") == 500500


def test_a_failed_load_leaves_others_their_commits(small_target, con):
    """Also where the failed one keeps what it took: its blocks are free for itself only."""
    attach(con, small_target, "other.duckdb")
    con.execute("CREATE TABLE other.t (v BIGINT, s VARCHAR)")
    attach(con, small_target, "x.duckdb")
    con.execute("CREATE TABLE x.t (v BIGINT, s VARCHAR)")
    with pytest.raises(duckdb.Error, match="full"):
        con.execute(LOAD)
    for n in range(8):
        con.execute("INSERT INTO other.t VALUES (?, repeat('x', 60000))", [n])
    assert one(con, "SELECT count(*) FROM other.t") == 8


def commit_until_refused(con) -> tuple[int, str]:
    """Returns how many commits of a megabyte succeeded, and what was said to the next one."""
    for n in range(1000):
        try:
            con.execute("INSERT INTO x.t VALUES (?, repeat('x', 1000000))", [n])
        except duckdb.Error as error:
            return n, str(error)
    return 1000, ""


def test_full_while_the_log_grows(small_target):
    """Small commits until the volume is full: each one either is there afterwards or was refused."""
    with rawduck.connect() as con:
        con.execute("SET wal_autocheckpoint = '10GB'; SET checkpoint_on_detach = 'DISABLED'")
        attach(con, small_target, "x.duckdb")
        con.execute("CREATE TABLE x.t (n INTEGER, s VARCHAR)")
        committed, message = commit_until_refused(con)
    assert 20 <= committed < 1000
    assert "full" in message
    with rawduck.connect() as con:
        attach(con, small_target, "x.duckdb", "(READ_ONLY)")
        assert con.execute("SELECT count(*), max(n) FROM x.t").fetchone() == (committed, committed - 1)


FILL_AND_WAIT = """
connection.execute("SET wal_autocheckpoint = '10GB'")
connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
connection.execute("CREATE TABLE IF NOT EXISTS x.t (n INTEGER, s VARCHAR)")
for size in (1000000, 100000, 10000, 1000, 1):
    try:
        while True:
            connection.execute("INSERT INTO x.t VALUES (1, repeat('x', ?))", [size])
    except duckdb.Error as error:
        assert "full" in str(error), error
print("ready", flush=True)
sys.stdin.readline()
"""
EMPTY = """
connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
print("ready", connection.execute("SELECT count(*) > 0 FROM x.t").fetchone(), flush=True)
connection.execute("DROP TABLE x.t")
connection.execute("CHECKPOINT x")
"""


@pytest.mark.parametrize("size", ["16M", "20M", "64M"])
def test_emptied_after_kills(new_target, size):
    """A log that took all it could may not keep the checkpoint that ends it from replacing blocks."""
    target = new_target("file-4096", size=size)
    for _ in range(3):
        kill_when_ready(FILL_AND_WAIT, target.path("x.duckdb"))
    run_python(EMPTY, target.path("x.duckdb"))
    with rawduck.connect(target.path("x.duckdb")) as con:
        con.execute("CREATE TABLE u AS SELECT range AS v FROM range(100000)")
        assert one(con, "SELECT count(*) FROM nvme_check(?) WHERE severity <> 'ok'", target.name) == 0


def attach_until_refused(con, target) -> str:
    """Makes databases as long as there is space; returns the name of the one for which there was none."""
    for n in range(100):
        try:
            attach(con, target, f"y{n}.duckdb")
        except duckdb.IOException:
            return f"y{n}.duckdb"
    raise AssertionError("there is always space")


def test_a_database_that_could_not_be_made_is_not_there(small_target, con):
    """Half of one could not be opened, and would stand in the way of the next attempt."""
    attach(con, small_target, "x.duckdb")
    con.execute("CREATE TABLE x.t (v BIGINT, s VARCHAR)")
    with pytest.raises(duckdb.Error, match="full"):
        con.execute(LOAD)
    refused = attach_until_refused(con, small_target)
    assert refused not in file_names(con, small_target)
    with pytest.raises(duckdb.Error, match="full"):
        attach(con, small_target, refused)
    con.execute("DETACH x")
    con.execute("SELECT * FROM nvme_remove(?)", [small_target.path("x.duckdb")])
    name = attach(con, small_target, refused)
    con.execute(f"CREATE TABLE {name}.t AS SELECT 42 AS v")
    con.execute(f"DETACH {name}")
    attach(con, small_target, refused)
    assert one(con, f"SELECT v FROM {name}.t") == 42


def test_copy_onto_a_volume_that_is_too_small(small_target, con, tmp_path):
    big = tmp_path / "big.bin"
    with big.open("wb") as file:
        file.truncate(128 * 1024**2)
    used = one(con, "SELECT used FROM nvme_info(?)", small_target.name)
    with pytest.raises(duckdb.IOException, match="the copy needs 128 MiB"):
        con.execute("SELECT * FROM nvme_copy(?, ?)", [str(big), small_target.path("big.bin")]).fetchall()
    assert one(con, "SELECT count(*) FROM nvme_files(?)", small_target.name) == 0
    assert one(con, "SELECT used FROM nvme_info(?)", small_target.name) == used


def test_spilling_onto_a_full_volume(small_target):
    config = {"memory_limit": "80MB", "threads": 2, "block_allocator_memory": "0B"}
    with rawduck.connect(config=config) as con:
        con.execute(f"SET temp_directory = '{small_target.path('tmp')}'")
        query = """
            SELECT sum(n) FROM (
                SELECT row_number() OVER (ORDER BY s) AS n
                FROM (SELECT md5(range::VARCHAR) AS s FROM range(6000000)))
        """
        with pytest.raises(duckdb.Error):
            con.execute(query).fetchall()
        assert one(con, "SELECT 42") == 42
