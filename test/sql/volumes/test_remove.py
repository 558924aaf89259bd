"""nvme_remove."""

from __future__ import annotations

import duckdb
import pytest


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
