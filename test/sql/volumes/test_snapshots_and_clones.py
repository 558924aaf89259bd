"""Snapshots and clones of databases, through DuckDB and the command line."""

from __future__ import annotations

import json
import threading

import duckdb
import pytest
import rawduck
from support import file_names, run_cli, start_python


def one(con, query, *parameters):
    return con.execute(query, list(parameters)).fetchone()[0]


def held(con, target):
    return one(con, "SELECT sum(held) FROM nvme_snapshots(?)", target.name)


@pytest.fixture
def sales(target, con):
    path = target.path("sales.duckdb")
    con.execute(f"ATTACH '{path}' AS sales; CREATE TABLE sales.t AS SELECT range AS i FROM range(100000)")
    con.execute("CHECKPOINT sales")
    return path


def test_a_snapshot_is_what_was_committed(target, con, sales):
    con.execute("INSERT INTO sales.t VALUES (-1)")  # lies in the log
    assert con.execute(f"CALL nvme_snapshot('{sales}', 'monday')").fetchall() == [(f"{sales}@monday",)]
    con.execute("UPDATE sales.t SET i = i + 7; CHECKPOINT sales; INSERT INTO sales.t FROM range(1000)")
    con.execute(f"ATTACH '{sales}@monday' AS monday (READ_ONLY)")
    assert con.execute("SELECT count(*), sum(i) FROM monday.t").fetchone() == (100001, 4999949999)
    assert one(con, "SELECT count(*) FROM sales.t") == 101001
    con.execute("DETACH monday")
    row = con.execute("SELECT file, snapshot, path, kind FROM nvme_snapshots(?)", [target.name]).fetchone()
    assert row == ("sales.duckdb", "monday", f"{sales}@monday", "database")
    assert held(con, target) > 0


def test_nothing_writes_to_a_snapshot(con, sales):
    con.execute(f"CALL nvme_snapshot('{sales}', 'monday')")
    with pytest.raises(duckdb.IOException, match=r"belongs to a snapshot.*READ_ONLY"):
        con.execute(f"ATTACH '{sales}@monday' AS monday")
    with pytest.raises(duckdb.IOException, match=r"belongs to a snapshot.*nvme_drop_snapshot"):
        con.execute(f"CALL nvme_remove('{sales}@monday')")


def test_a_clone_is_a_database_of_its_own(target, con, sales):
    con.execute("INSERT INTO sales.t VALUES (-1)")
    con.execute(f"CALL nvme_snapshot('{sales}', 'monday')")
    used = one(con, "SELECT used FROM nvme_info(?)", target.name)
    for source, name in ((f"{sales}@monday", "a"), (sales, "b")):
        clone = target.path(f"{name}.duckdb")
        assert con.execute(f"CALL nvme_clone('{source}', '{clone}')").fetchall() == [(clone,)]
    assert one(con, "SELECT used FROM nvme_info(?)", target.name) == used
    con.execute(f"ATTACH '{target.path('a.duckdb')}' AS a; ATTACH '{target.path('b.duckdb')}' AS b")
    con.execute(
        "DELETE FROM a.t WHERE i >= 10; CHECKPOINT a; INSERT INTO b.t VALUES (-2); DROP TABLE sales.t"
    )
    con.execute("CHECKPOINT sales")
    assert con.execute("SELECT count(*), min(i) FROM a.t").fetchone() == (11, -1)
    assert con.execute("SELECT count(*), min(i) FROM b.t").fetchone() == (100002, -2)
    con.execute(f"ATTACH '{sales}@monday' AS monday (READ_ONLY)")
    assert one(con, "SELECT count(*) FROM monday.t") == 100001


def test_space_is_given_back_with_the_last_holder(target, con, sales):
    con.execute(f"CALL nvme_snapshot('{sales}', 'monday'); CALL nvme_snapshot('{sales}', 'tuesday')")
    con.execute("DETACH sales")
    size = one(con, "SELECT size FROM nvme_files(?) WHERE name = 'sales.duckdb'", target.name)
    con.execute(f"CALL nvme_remove('{sales}')")
    assert one(con, "SELECT used FROM nvme_info(?)", target.name) >= size
    con.execute(f"ATTACH '{sales}@monday' AS monday (READ_ONLY)")
    assert one(con, "SELECT count(*) FROM monday.t") == 100000
    with pytest.raises(duckdb.IOException, match=r"open in this process; DETACH"):
        con.execute(f"CALL nvme_drop_snapshot('{sales}@monday')")
    con.execute("DETACH monday")
    con.execute(f"CALL nvme_drop_snapshot('{sales}@monday')")
    assert held(con, target) >= size
    con.execute(f"CALL nvme_drop_snapshot('{sales}@tuesday')")
    assert one(con, "SELECT used FROM nvme_info(?)", target.name) == 0


def test_snapshots_beside_a_writer_are_consistent(target, con, sales):
    """Each commit moves the same amount from one table to the other: every snapshot has all of it."""
    con.execute("CREATE TABLE sales.a AS SELECT 1000 AS v; CREATE TABLE sales.b AS SELECT 0 AS v")
    stop = threading.Event()

    def commit():
        with con.cursor() as writer:
            step = 0
            while not stop.is_set():
                writer.execute("BEGIN; UPDATE sales.a SET v = v - 1; UPDATE sales.b SET v = v + 1; COMMIT")
                step += 1
                if step % 40 == 0:
                    writer.execute("CHECKPOINT sales")

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        for number in range(25):
            con.execute(f"CALL nvme_snapshot('{sales}', 's{number}')")
    finally:
        stop.set()
        thread.join()
    moved = []
    for number in range(25):
        con.execute(f"ATTACH '{sales}@s{number}' AS s (READ_ONLY)")
        a, b = con.execute("SELECT a.v, b.v FROM s.a, s.b").fetchone()
        assert a + b == 1000
        moved.append(b)
        con.execute("DETACH s")
    assert moved == sorted(moved)


def test_a_snapshot_with_a_log_is_copied_off_the_volume(target, con, sales, tmp_path):
    """In the two ways that docs/SNAPSHOTS.md has."""
    con.execute("INSERT INTO sales.t VALUES (-1)")  # lies in the log
    con.execute(f"CALL nvme_snapshot('{sales}', 'monday')")
    with pytest.raises(
        duckdb.IOException, match=r"write-ahead log beside it.*Of a snapshot.*COPY FROM DATABASE"
    ):
        con.execute(f"CALL nvme_copy('{sales}@monday', '{tmp_path / 'refused.duckdb'}')")
    con.execute(f"ATTACH '{sales}@monday' AS monday (READ_ONLY); ATTACH '{tmp_path / 'a.duckdb'}' AS backup")
    con.execute("COPY FROM DATABASE monday TO backup; DETACH backup; DETACH monday")
    clone = target.path("clone.duckdb")
    con.execute(f"CALL nvme_clone('{sales}@monday', '{clone}'); ATTACH '{clone}' AS c; DETACH c")
    con.execute(f"CALL nvme_copy('{clone}', '{tmp_path / 'b.duckdb'}')")
    for name in ("a", "b"):
        with duckdb.connect(tmp_path / f"{name}.duckdb") as stock:
            assert stock.execute("SELECT count(*), min(i) FROM t").fetchone() == (100001, -1)


def test_it_is_there_after_a_mount(durable_target):
    path = durable_target.path("x.duckdb")
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{path}' AS x; CREATE TABLE x.t AS FROM range(1000); CHECKPOINT x")
        con.execute(f"INSERT INTO x.t VALUES (5); CALL nvme_snapshot('{path}', 's'); DELETE FROM x.t")
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{path}@s' AS s (READ_ONLY)")
        assert one(con, "SELECT count(*) FROM s.t") == 1001
        con.execute("DETACH s")
        findings = con.execute(
            "SELECT what, detail FROM nvme_check(?) WHERE severity <> 'ok'", [durable_target.name]
        )
        assert findings.fetchall() == []


def test_other_volumes_and_paths_are_refused(new_target, con, sales):
    other = new_target("memory-4096")
    with pytest.raises(duckdb.InvalidInputException, match="cannot be on another volume"):
        con.execute(f"CALL nvme_clone('{sales}', '{other.path('x.duckdb')}')")
    with pytest.raises(duckdb.InvalidInputException, match="cannot be the name of a snapshot"):
        con.execute(f"CALL nvme_snapshot('{sales}', 'a@b')")
    with pytest.raises(duckdb.InvalidInputException, match="are of files on volumes"):
        con.execute("CALL nvme_snapshot('/tmp/x.duckdb', 'monday')")


def test_the_command_line(file_target):
    def run(*arguments):
        result = run_cli(*arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    path = file_target.path("x.duckdb")
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{path}' AS x; CREATE TABLE x.t AS FROM range(1000)")
    assert json.loads(run("snapshot", f"{path}@monday", "--json")) == {"snapshot": f"{path}@monday"}
    run("clone", f"{path}@monday", file_target.path("y.duckdb"))
    listed = run("ls", file_target.name)
    assert "x.duckdb@monday" in listed
    assert "held" in listed
    by_pattern = run_cli("rm", f"{path}@*")
    assert "a snapshot, which no pattern means" in by_pattern.stderr
    run("rm", f"{path}@monday")
    assert "monday" not in run("ls", file_target.name)
    assert "give the snapshot a name" in run_cli("snapshot", path).stderr
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{file_target.path('y.duckdb')}' AS y")
        assert one(con, "SELECT count(*) FROM y.t") == 1000


def test_a_pattern_has_the_rows_of_files_and_not_of_their_snapshots(file_target, con):
    """Nor what is kept for a reader, which has the same rows, too."""
    for name in ("a", "b"):
        con.execute(f"COPY (FROM range(10)) TO '{file_target.path(f'd/{name}.parquet')}'")
    writer = con.cursor()
    writer.execute(f"ATTACH '{file_target.path('x.duckdb')}' AS x")
    con.execute(f"CALL nvme_snapshot('{file_target.path('d/a.parquet')}', 'monday')")
    code = """
rows = connection.execute(f"SELECT count(*) FROM read_parquet('{sys.argv[1]}@latest')")
print("ready", flush=True)
connection.execute(f"ATTACH '{sys.argv[2]}@latest' AS x (READ_ONLY)")
print("attached", flush=True)
sys.stdin.readline()
"""
    path, database = file_target.path("d/b.parquet"), file_target.path("x.duckdb")
    with start_python(code, path, database) as reader:
        assert [reader.stdout.readline() for _ in range(2)] == ["ready\n", "attached\n"]
        for pattern in ("d/*", "d/**", "**/*.parquet*", "*/[ab]*"):
            count = one(con, f"SELECT count(*) FROM read_parquet('{file_target.path(pattern)}')")
            assert count == 20, pattern
        everything = con.execute("SELECT file FROM glob(?)", [file_target.path("**")]).fetchall()
        assert sorted(everything) == [(path_,) for path_ in (file_target.path("d/a.parquet"), path, database)]
        named = con.execute("SELECT file FROM glob(?)", [file_target.path("**/*@*")]).fetchall()
        assert named == [(file_target.path("d/a.parquet@monday"),)]
        reader.communicate("\n")


@pytest.mark.parametrize("ending", ["@monady", "@latest", "@latest-00000000002a"])
def test_no_file_gets_the_name_of_a_snapshot(target, con, sales, ending):
    """A misspelt one would be an empty database."""
    con.execute(f"CALL nvme_snapshot('{sales}', 'monday'); DETACH sales")
    other = target.path("other.duckdb")
    con.execute(f"CALL nvme_clone('{sales}', '{other}')")
    for statement in (
        f"ATTACH '{sales}{ending}' AS x",
        f"COPY (SELECT 1) TO '{sales}{ending}'",
        f"CALL nvme_move('{other}', '{sales}{ending}')",
        f"CALL nvme_clone('{other}', '{sales}{ending}')",
        f"CALL nvme_copy('{other}', '{sales}{ending}')",
    ):
        with pytest.raises(duckdb.Error):
            con.execute(statement)
    if ending == "@monady":
        with pytest.raises(
            duckdb.IOException, match=r'no snapshot "monady" of "sales.duckdb" on this volume'
        ):
            con.execute(f"ATTACH '{sales}{ending}' AS x")
    found = [name for name in sorted(file_names(con, target)) if "@latest-" not in name]  # of the ATTACH
    assert found == ["other.duckdb", "sales.duckdb", "sales.duckdb@monday"]


def test_a_database_with_such_a_name_is_used_on(target, con):
    """Its logs and temporary files are called as it is."""
    path = target.path("sales@old.duckdb")
    con.execute(f"ATTACH '{path}' AS old; CREATE TABLE old.t AS SELECT range AS i FROM range(1000)")
    con.execute(f"COPY (SELECT 1) TO '{target.path('sales')}' (FORMAT csv)")
    con.execute("INSERT INTO old.t VALUES (1000); CHECKPOINT old; INSERT INTO old.t VALUES (1001)")
    con.execute(f"DETACH old; ATTACH '{path}' AS old; INSERT INTO old.t VALUES (1002)")
    assert con.execute("SELECT count(*) FROM old.t").fetchall() == [(1003,)]
    con.execute(f"COPY (SELECT 1) TO '{target.path('sales@2026/x.csv')}'")
    assert "sales@2026/x.csv" in file_names(con, target)


def test_a_file_with_such_a_name_is_replaced(target, con):
    """It was there before the file that it would be the snapshot of."""
    path, other = target.path("sales@old.parquet"), target.path("other.parquet")
    for name in ("sales@old.parquet", "other.parquet", "sales"):
        con.execute(f"COPY (SELECT 1 AS i) TO '{target.path(name)}' (FORMAT parquet)")
    con.execute(f"COPY (SELECT 2 AS i) TO '{path}'")
    assert one(con, f"SELECT i FROM read_parquet('{path}')") == 2
    con.execute(f"CALL nvme_move('{other}', '{path}', overwrite := true)")
    assert one(con, f"SELECT i FROM read_parquet('{path}')") == 1
    assert file_names(con, target) == ["sales", "sales@old.parquet"]
