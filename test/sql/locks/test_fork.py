"""A DuckDB that was opened before fork(), in the child, once the parent has let go of its volume."""

import pytest
import rawduck
from support import run_python


@pytest.fixture
def filled(durable_target):
    with rawduck.connect(durable_target.path("x.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT range AS v FROM range(1000)")
    return durable_target


CHILD_COMMITS = """
    import subprocess
    path = sys.argv[1]
    connection.execute(f"ATTACH '{path}' AS x")
    connection.execute("CHECKPOINT x")  # no log is there, or open
    go_on = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(go_on[0], 1)
        try:
            connection.execute("INSERT INTO x.t VALUES (-2)")
            print("committed", flush=True)
        except duckdb.Error as error:
            print("opened before fork()" in str(error), flush=True)
        finally:
            os._exit(0)
    connection.close()
    other = f"import rawduck; rawduck.connect({path!r}).execute({sys.argv[2]!r})"
    subprocess.run([sys.executable, "-c", other], check=True)
    os.write(go_on[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
"""


def test_child_does_not_commit_to_what_others_have_changed(filled):
    """It knows the database as it was at the fork: its commit would undo what others have committed."""
    change = "CREATE TABLE u AS SELECT range AS v FROM range(500000); INSERT INTO t VALUES (-1)"
    assert run_python(CHILD_COMMITS, filled.path("x.duckdb"), change) == "True"
    with rawduck.connect(filled.path("x.duckdb")) as con:
        assert con.execute("SELECT min(v), count(*) FROM t").fetchone() == (-1, 1001)
        assert con.execute("SELECT sum(v) FROM u").fetchone() == (500000 * 499999 // 2,)


def test_child_opens_a_duckdb_of_its_own(filled):
    code = """
    connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
    connection.execute("CHECKPOINT x")
    connection.execute("DETACH x")
    child = os.fork()
    if child == 0:
        try:
            with rawduck.connect(sys.argv[1]) as own:
                own.execute("INSERT INTO t VALUES (-1)")
                print("committed", flush=True)
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(connection.execute(f"ATTACH '{sys.argv[1]}' AS x; SELECT min(v) FROM x.t").fetchone()[0])
    """
    assert run_python(code, filled.path("x.duckdb")).splitlines() == ["committed", "-1"]


READ_IN_CHILD = """
    if sys.argv[2] == "direct":
        connection.execute(f"ATTACH 'direct://{sys.argv[1]}' AS x (READ_ONLY)")
    else:
        connection.execute(f"ATTACH '{sys.argv[1]}' AS x (READ_ONLY)")
    child = os.fork()
    if child == 0:
        try:
            print(connection.execute("SELECT sum(v) FROM x.t").fetchall(), flush=True)
        except duckdb.Error as error:
            print("before fork()" in str(error), flush=True)
        finally:
            os._exit(0)
    deadline = time.monotonic() + 30
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            print("hangs")
            break
        time.sleep(0.01)
"""


@pytest.mark.parametrize("kind", ["volume", "direct"])
def test_child_that_reads_does_not_hang(new_target, tmp_path, kind):
    """It has none of the threads that read ahead."""
    path = str(tmp_path / "x.duckdb") if kind == "direct" else new_target("file-4096").path("x.duckdb")
    with rawduck.connect("direct://" + path if kind == "direct" else path) as con:
        con.execute("CREATE TABLE t AS SELECT range AS v FROM range(3000000)")
    answer = run_python(READ_IN_CHILD, path, kind)
    assert answer in ("True", f"[({3000000 * 2999999 // 2},)]")


HOLDS_IN_CHILD = """
    import signal
    source, destination = sys.argv[1:]
    connection.execute("BEGIN")
    connection.execute("CALL nvme_copy(?, ?)", [source, destination])
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        connection.execute("COMMIT")
        print("committed", flush=True)
        os._exit(0)
    ended = os.waitpid(child, 0)[1]
    connection.execute("CALL nvme_remove(?)", [destination])
    connection.execute("COMMIT")
    print(ended, len(connection.execute("FROM nvme_volumes()").fetchall()))
"""


def test_child_does_not_end_what_its_parent_holds(durable_target, con):
    """It would wait for the thread that writes the checkpoint, which it does not have."""
    path = durable_target.path("x.csv")
    con.execute(f"COPY (SELECT 1) TO '{path}'")
    for i in range(3):
        answer = run_python(HOLDS_IN_CHILD, path, durable_target.path(f"{i}.csv"))
        assert answer.splitlines() == ["committed", "0 0"]
