"""Several processes and one volume: readers share, a second writer is told why not."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
import rawduck
from support import CHILD_SECONDS, attach, one, run_python, start_python

HOLD = """
options = "(READ_ONLY)" if sys.argv[2] == "read" else ""
connection.execute(f"ATTACH '{sys.argv[1]}' AS x {options}")
print("ready", connection.execute("SELECT count(*) FROM x.t").fetchone()[0], flush=True)
sys.stdin.readline()
connection.execute("DETACH x")
"""


@pytest.fixture
def filled(durable_target):
    with rawduck.connect(durable_target.path("x.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT range AS v FROM range(1000)")
    return durable_target


@contextmanager
def hold(target, how: str):
    """Another process that has the database attached while the block runs, and detaches it at its end."""
    with start_python(HOLD, target.path("x.duckdb"), how) as child:
        line = child.stdout.readline()
        assert line == "ready 1000\n", child.stderr.read()
        yield child
        if child.poll() is None:
            _, errors = child.communicate("\n", timeout=CHILD_SECONDS)
            assert child.returncode == 0, errors


def test_second_writer_is_refused(filled, con):
    with hold(filled, "write") as child:
        with pytest.raises(duckdb.IOException) as caught:
            attach(con, filled, "x.duckdb")
        assert filled.name in str(caught.value)
        assert str(child.pid) in str(caught.value)
    attach(con, filled, "x.duckdb")
    con.execute("INSERT INTO x.t VALUES (1)")


def test_writer_of_another_file_is_refused_too(filled, con):
    """One process at a time owns the metadata of a volume."""
    with hold(filled, "write") as child, pytest.raises(duckdb.IOException, match=str(child.pid)):
        attach(con, filled, "other.duckdb")


def test_reader_beside_a_writer_is_refused(filled, con):
    with hold(filled, "write") as child, pytest.raises(duckdb.IOException, match=str(child.pid)):
        attach(con, filled, "x.duckdb", "(READ_ONLY)")


def test_writer_beside_a_reader_is_refused(filled, con):
    with hold(filled, "read") as child:
        with pytest.raises(duckdb.IOException, match=str(child.pid)):
            attach(con, filled, "x.duckdb")
        attach(con, filled, "x.duckdb", "(READ_ONLY)")
        assert one(con, "SELECT count(*) FROM x.t") == 1000


def test_readers_share(filled, con):
    with hold(filled, "read"), hold(filled, "read"), hold(filled, "read"):
        attach(con, filled, "x.duckdb", "(READ_ONLY)")
        assert one(con, "SELECT sum(v) FROM x.t") == 499500


def test_two_instances_of_one_process(filled):
    """The same rules hold between DuckDB instances of one process."""
    refused = pytest.raises(duckdb.Error, match=r"(?i)already|in use|lock")
    with rawduck.connect(filled.path("x.duckdb")), rawduck.connect() as other, refused:
        attach(other, filled, "x.duckdb")
    with rawduck.connect(filled.path("x.duckdb"), read_only=True), rawduck.connect() as other:
        attach(other, filled, "x.duckdb", "(READ_ONLY)")
        assert one(other, "SELECT count(*) FROM x.t") == 1000


def test_two_instances_of_one_process_on_two_databases(filled):
    with rawduck.connect(filled.path("x.duckdb")) as con, rawduck.connect(filled.path("y.duckdb")) as other:
        other.execute("CREATE TABLE t AS SELECT 1 AS v")
        con.execute("INSERT INTO t VALUES (1)")
        assert one(con, "SELECT count(*) FROM t") == 1001


def test_fork(filled):
    """A forked child neither writes to its parent's volume nor takes its lock away."""
    code = """
    connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
    connection.execute("INSERT INTO x.t VALUES (-1)")
    child = os.fork()
    if child == 0:
        try:
            rawduck.connect().execute(f"ATTACH '{sys.argv[1]}.other' AS y")
        except duckdb.Error as error:
            print("refused", str(os.getppid()) in str(error), flush=True)
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    connection.execute("INSERT INTO x.t VALUES (-2)")
    print(connection.execute("SELECT count(*), min(v) FROM x.t").fetchone())
    """
    output = run_python(code, filled.path("x.duckdb"))
    assert output.splitlines() == ["refused True", "(1002, -2)"]
    with rawduck.connect() as con:
        attach(con, filled, "x.duckdb")
        assert one(con, "SELECT count(*) FROM x.t") == 1002


def test_fork_then_child_uses_a_volume_of_its_own(filled, new_target):
    other = new_target("file-4096")
    code = """
    connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
    child = os.fork()
    if child == 0:
        try:
            with rawduck.connect(sys.argv[2]) as own:
                own.execute("CREATE TABLE t AS SELECT range AS v FROM range(100000)")
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(connection.execute("SELECT count(*) FROM x.t").fetchone()[0])
    """
    assert run_python(code, filled.path("x.duckdb"), other.path("y.duckdb")) == "1000"
    with rawduck.connect(other.path("y.duckdb")) as con:
        assert one(con, "SELECT sum(v) FROM t") == 4999950000


def test_lock_ends_with_the_process(filled, con):
    with hold(filled, "write") as child:
        child.kill()
        child.wait()
        attach(con, filled, "x.duckdb")
        assert one(con, "SELECT count(*) FROM x.t") == 1000


ASK = """
connection.execute("SELECT 1")
os.setgid(65534)
os.setuid(65534)
begin = time.monotonic()
for function in ("nvme_files", "nvme_info", "nvme_check"):
    assert connection.execute(f"FROM {function}(?)", [sys.argv[1]]).fetchall()
print(time.monotonic() - begin)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_is_answered_at_once(file_target):
    """Which locks a process of somebody else holds nobody sees, and such a lock is waited for."""
    with rawduck.connect(file_target.path("x.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT range AS v FROM range(1000)")
    for folder in (Path(file_target.name), *list(Path(file_target.name).parents)[:-2]):
        folder.chmod(folder.stat().st_mode | (0o005 if folder.is_dir() else 0o004))
    with hold(file_target, "write"):
        assert float(run_python(ASK, file_target.name)) < 4


COME_AND_GO = """
print("ready", flush=True)
end = time.monotonic() + 4
while time.monotonic() < end:
    try:
        connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
        connection.execute("INSERT INTO x.t VALUES (1)")
    except duckdb.IOException:
        pass  # somebody reads without a writer
    connection.execute("DETACH DATABASE IF EXISTS x")
"""


def test_a_writer_may_leave_while_it_is_asked(file_target, con):
    """Whoever asks for files or a check then looks by itself."""
    with rawduck.connect(file_target.path("x.duckdb")) as filling:
        filling.execute("CREATE TABLE t AS SELECT range AS v FROM range(1000)")
    with start_python(COME_AND_GO, file_target.path("x.duckdb")) as child:
        child.stdout.readline()
        asked = 0
        while child.poll() is None:
            assert con.execute("FROM nvme_files(?)", [file_target.name]).fetchall()
            checked = con.execute("FROM nvme_check(?)", [file_target.name]).fetchall()
            assert not [row for row in checked if row[0] == "error"]
            asked += 1
        assert child.returncode == 0, child.stderr.read()
        assert asked > 5
