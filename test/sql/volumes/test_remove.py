"""nvme_remove."""

from __future__ import annotations

import duckdb
import pytest
from support import run_cli, run_python


def names(con, target):
    rows = con.execute("SELECT name FROM nvme_files(?) ORDER BY name", [target.name]).fetchall()
    return [row[0] for row in rows]


def test_a_file_is_gone_and_its_space_is_free(file_target, con):
    con.execute(f"COPY (FROM range(100000)) TO '{file_target.path('x.parquet')}'")
    used = con.execute("SELECT used FROM nvme_info(?)", [file_target.name]).fetchone()[0]
    path = file_target.path("x.parquet")
    assert con.execute(f"CALL nvme_remove('{path}')").fetchall() == [(path,)]
    assert names(con, file_target) == []
    assert con.execute("SELECT used FROM nvme_info(?)", [file_target.name]).fetchone()[0] < used


@pytest.mark.parametrize("options", ["", "(READ_ONLY)"])
def test_an_attached_database_is_not_removed(file_target, con, options):
    path = file_target.path("x.duckdb")
    con.execute(f"ATTACH '{path}' AS x; CREATE TABLE x.t AS FROM range(10); DETACH x")
    con.execute(f"ATTACH '{path}' AS x {options}")
    with pytest.raises(duckdb.IOException, match="already open"):
        con.execute(f"CALL nvme_remove('{path}')")
    assert con.execute("SELECT count(*) FROM x.t").fetchall() == [(10,)]
    con.execute("DETACH x")
    con.execute(f"CALL nvme_remove('{path}')")
    assert names(con, file_target) == []


def test_a_database_takes_its_log_with_it(file_target, con, tmp_path):
    """That of a killed process."""
    path = file_target.path("x.duckdb")
    con.execute(f"ATTACH '{path}' AS x; CREATE TABLE x.t AS FROM range(10); DETACH x")
    log = tmp_path / "plain.txt"
    log.write_bytes(b"records")
    for name in ("x.duckdb.wal", "y.duckdb.wal"):
        con.execute("SELECT * FROM nvme_copy(?, ?)", [str(log), file_target.path(name)])
    assert con.execute(f"CALL nvme_remove('{path}')").fetchall() == [(path,), (path + ".wal",)]
    assert names(con, file_target) == ["y.duckdb.wal"]
    with pytest.raises(duckdb.IOException, match="no file"):
        con.execute(f"CALL nvme_remove('{file_target.path('y.duckdb')}')")
    assert names(con, file_target) == ["y.duckdb.wal"]


@pytest.mark.parametrize("path", ["/tmp/x.duckdb", "direct:///tmp/x.duckdb"])
def test_only_files_of_volumes(con, path):
    with pytest.raises(duckdb.InvalidInputException, match="nvme_remove removes files of volumes"):
        con.execute(f"CALL nvme_remove('{path}')")


def test_a_missing_file(file_target, con):
    with pytest.raises(duckdb.IOException, match=r'no file "x\.duckdb" on this volume'):
        con.execute(f"CALL nvme_remove('{file_target.path('x.duckdb')}')")


def mounted(con):
    return con.execute("SELECT count(*) FROM nvme_volumes()").fetchone()[0]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_many_in_one_mount(file_target, con, end, tmp_path):
    """A transaction keeps the volume mounted, and takes back nothing."""
    paths = [file_target.path(f"{name}.csv") for name in "abcd"]
    for path in paths:
        con.execute(f"COPY (SELECT 1) TO '{path}'")
    assert mounted(con) == 0
    con.execute("BEGIN")
    con.execute(f"CALL nvme_remove('{paths[0]}')")
    assert mounted(con) == 1
    con.execute(f"CALL nvme_remove('{paths[1]}')")
    con.execute(f"CALL nvme_move('{paths[2]}', '{file_target.path('moved.csv')}')")
    con.execute("CALL nvme_copy(?, ?)", [paths[3], str(tmp_path / "d.csv")])
    con.execute(end)
    assert mounted(con) == 0
    assert names(con, file_target) == ["d.csv", "moved.csv"]


@pytest.mark.parametrize("call", ["nvme_move('{path}', '{other}')", "nvme_copy('{path}', '{other}')"])
def test_each_of_them_keeps_it_mounted(file_target, con, call):
    path, other = file_target.path("a.csv"), file_target.path("b.csv")
    con.execute(f"COPY (SELECT 1) TO '{path}'")
    con.execute("BEGIN")
    con.execute("CALL " + call.format(path=path, other=other))
    assert mounted(con) == 1
    with pytest.raises(duckdb.IOException):
        con.execute(f"CALL nvme_remove('{path}x')")
    con.execute("ROLLBACK")
    assert mounted(con) == 0
    assert "b.csv" in names(con, file_target)


def test_what_a_transaction_keeps_is_in_use(file_target, con):
    paths = [file_target.path(f"{name}.csv") for name in "ab"]
    for path in paths:
        con.execute(f"COPY (SELECT 1) TO '{path}'")
    for statement in (
        f"CALL nvme_format('{file_target.name}', force := true)",
        f"CALL nvme_check('{file_target.name}', repair := true)",
    ):
        con.execute("BEGIN")
        con.execute(f"CALL nvme_copy('{paths[1]}', '{paths[0]}x')")
        with pytest.raises(duckdb.Error, match="in this process"):
            con.execute(statement)
        con.execute("ROLLBACK")
        con.execute(f"CALL nvme_remove('{paths[0]}x')")
    # What another process wants is done for it meanwhile.
    con.execute("BEGIN")
    con.execute(f"CALL nvme_remove('{paths[0]}')")
    other = run_python(
        "print(connection.execute('CALL nvme_remove(?)', [sys.argv[1]]).fetchall()[0][0])", paths[1]
    )
    con.execute("COMMIT")
    assert other == paths[1]
    assert names(con, file_target) == []


def test_outside_of_a_transaction_nothing_is_kept(file_target, con):
    path = file_target.path("a.csv")
    con.execute(f"COPY (SELECT 1) TO '{path}'")
    con.execute(f"CALL nvme_remove('{path}')")
    assert mounted(con) == 0


@pytest.mark.parametrize("command", ["rm", "mv"])
def test_a_pattern_with_snapshots_does_nothing(file_target, con, command):
    """Not half of it."""
    path = file_target.path("a@b.csv")
    for name in ("a@b.csv", "x.csv"):
        con.execute(f"COPY (SELECT 1) TO '{file_target.path(name)}'")
    con.execute("CALL nvme_snapshot(?, 'monday')", [file_target.path("x.csv")])
    folder = [file_target.path("d/")] if command == "mv" else []
    failed = run_cli(command, file_target.path("*@*"), *folder)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "x.csv@monday: a snapshot" in failed.stderr
    assert names(con, file_target) == ["a@b.csv", "x.csv", "x.csv@monday"]
    assert run_cli(command, path, *folder).returncode == 0
