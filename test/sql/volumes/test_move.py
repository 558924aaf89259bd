"""nvme_move."""

from __future__ import annotations

import duckdb
import pytest


def names(con, target):
    rows = con.execute("SELECT name FROM nvme_files(?) ORDER BY name", [target.name]).fetchall()
    return [row[0] for row in rows]


def make_database(con, path, value=1):
    con.execute(f"ATTACH '{path}' AS made; CREATE TABLE made.t AS SELECT {value} AS i; DETACH made")


def content(con, path):
    con.execute(f"ATTACH '{path}' AS moved (READ_ONLY)")
    try:
        return con.execute("SELECT i FROM moved.t").fetchone()[0]
    finally:
        con.execute("DETACH moved")


def move(con, source, destination, overwrite=False):
    query = "SELECT * FROM nvme_move(?, ?, overwrite := ?)"
    return con.execute(query, [source, destination, overwrite]).fetchall()


def test_a_database_has_another_name(file_target, con):
    source, destination = file_target.path("a.duckdb"), file_target.path("deep/er/b.duckdb")
    make_database(con, source)
    assert move(con, source, destination) == [(source, destination)]
    assert names(con, file_target) == ["deep/er/b.duckdb"]
    assert content(con, destination) == 1
    assert move(con, destination, destination) == [(destination, destination)]
    assert content(con, destination) == 1


def test_what_has_the_name_is_replaced_when_that_is_said(file_target, con):
    source, destination = file_target.path("a.duckdb"), file_target.path("b.duckdb")
    make_database(con, source, 1)
    make_database(con, destination, 2)
    with pytest.raises(duckdb.IOException, match=r"exists already.*--overwrite"):
        move(con, source, destination)
    assert names(con, file_target) == ["a.duckdb", "b.duckdb"]
    move(con, source, destination, True)
    assert names(con, file_target) == ["b.duckdb"]
    assert content(con, destination) == 1


@pytest.mark.parametrize("options", ["", "(READ_ONLY)"])
@pytest.mark.parametrize("attached", ["a.duckdb", "b.duckdb"])
def test_nothing_that_is_attached_is_moved_or_replaced(file_target, con, options, attached):
    source, destination = file_target.path("a.duckdb"), file_target.path("b.duckdb")
    make_database(con, source, 1)
    make_database(con, destination, 2)
    con.execute(f"ATTACH '{file_target.path(attached)}' AS x {options}")
    with pytest.raises(duckdb.IOException, match="already open"):
        move(con, source, destination, True)
    con.execute("DETACH x")
    assert (content(con, source), content(con, destination)) == (1, 2)


def leave_log(con, path, tmp_path):
    """The log of a killed process: of a database that was copied while it had one."""
    log = tmp_path / "plain.txt"
    log.write_bytes(b"records")
    con.execute("SELECT * FROM nvme_copy(?, ?)", [str(log), path + ".wal"])


def test_a_write_ahead_log_goes_with_its_database(file_target, con, tmp_path):
    source, destination = file_target.path("a.duckdb"), file_target.path("b.duckdb")
    make_database(con, source)
    make_database(con, destination)
    leave_log(con, source, tmp_path)
    leave_log(con, destination, tmp_path)
    move(con, source, file_target.path("c.duckdb"))
    assert names(con, file_target) == ["b.duckdb", "b.duckdb.wal", "c.duckdb", "c.duckdb.wal"]
    con.execute("CALL nvme_remove(?)", [file_target.path("c.duckdb.wal")])
    move(con, file_target.path("c.duckdb"), destination, True)
    assert names(con, file_target) == ["b.duckdb"]


def test_a_write_ahead_log_without_its_database_is_not_taken_over(file_target, con, tmp_path):
    source, destination = file_target.path("a.duckdb"), file_target.path("b.duckdb")
    make_database(con, source)
    leave_log(con, destination, tmp_path)
    with pytest.raises(duckdb.InvalidInputException, match=r"log without its database, b\.duckdb\.wal"):
        move(con, source, destination)
    assert names(con, file_target) == ["a.duckdb", "b.duckdb.wal"]


@pytest.mark.parametrize("source_is_on_volume", [True, False])
def test_only_files_of_volumes(file_target, con, tmp_path, source_is_on_volume):
    inside, outside = file_target.path("a.duckdb"), str(tmp_path / "a.duckdb")
    make_database(con, inside if source_is_on_volume else outside)
    pair = (inside, outside) if source_is_on_volume else (outside, inside)
    with pytest.raises(duckdb.InvalidInputException, match=r"nvme_move renames files of volumes.*rawduck cp"):
        move(con, *pair)


def test_not_to_another_volume(file_target, con):
    make_database(con, file_target.path("a.duckdb"))
    con.execute("SET nvme_memory_size = '32MiB'")
    with pytest.raises(duckdb.InvalidInputException, match="cannot move it to another volume"):
        move(con, file_target.path("a.duckdb"), "nvme://memory:test_move/a.duckdb")
    assert names(con, file_target) == ["a.duckdb"]


def test_a_missing_file_and_an_impossible_name(file_target, con):
    with pytest.raises(duckdb.IOException, match=r'no file "x\.duckdb" on this volume'):
        move(con, file_target.path("x.duckdb"), file_target.path("y.duckdb"))
    make_database(con, file_target.path("x.duckdb"))
    with pytest.raises(duckdb.InvalidInputException, match="is a file, not a directory"):
        move(con, file_target.path("x.duckdb"), file_target.path("x.duckdb/y.duckdb"))
    assert names(con, file_target) == ["x.duckdb"]
