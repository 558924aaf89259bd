"""`rawduck mv`, `rm` and `cp` of several files, and patterns."""

from __future__ import annotations

import json
import os

import pytest
import rawduck
from support import failed, run_cli, succeeded


@pytest.fixture
def files(file_target, tmp_path, monkeypatch):
    """a.csv, b.csv, c.txt and d/e.csv on a volume, each with its name inside."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv", "c.txt", "e.csv"):
        (tmp_path / name).write_text(name)
    succeeded("cp", "a.csv", "b.csv", "c.txt", file_target.path(""))
    succeeded("cp", "e.csv", file_target.path("d/"))
    return file_target


def names(target) -> list[str]:
    return [file["name"] for file in json.loads(succeeded("ls", target.name, "--json"))]


def test_rm_of_a_pattern(files):
    assert names(files) == ["a.csv", "b.csv", "c.txt", "d/e.csv"]
    removed = json.loads(succeeded("rm", files.path("*.csv"), files.path("a.csv"), "--json"))
    assert removed == [{"removed": files.path("a.csv")}, {"removed": files.path("b.csv")}]
    assert names(files) == ["c.txt", "d/e.csv"]
    succeeded("rm", files.path("**/*.csv"))
    assert names(files) == ["c.txt"]


def test_what_has_no_match(files):
    assert "no file matches this pattern" in failed("rm", files.path("a.csv"), files.path("*.parquet"))
    assert names(files) == ["a.csv", "b.csv", "c.txt", "d/e.csv"], "nothing is removed before"


def test_a_name_is_no_pattern(files, tmp_path):
    (tmp_path / "[ab].csv").write_text("brackets")
    succeeded("cp", "[ab].csv", files.path(""))
    succeeded("rm", files.path("[ab].csv"))
    assert names(files) == ["a.csv", "b.csv", "c.txt", "d/e.csv"]
    succeeded("rm", files.path("[ab].csv"))
    assert names(files) == ["c.txt", "d/e.csv"]


def test_what_was_removed_before_a_failure_is_listed(files):
    done = run_cli("rm", files.path("a.csv"), files.path("missing"), "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout) == [{"removed": files.path("a.csv")}]
    assert "missing" in done.stderr


def test_cp_of_several(files, tmp_path):
    (tmp_path / "back").mkdir()
    copied = json.loads(succeeded("cp", files.path("*.csv"), files.path("c.txt"), "back", "--json"))
    assert [row["bytes"] for row in copied] == [5, 5, 5]
    assert {path.name: path.read_text() for path in (tmp_path / "back").iterdir()} == {
        name: name for name in ("a.csv", "b.csv", "c.txt")
    }
    assert "cannot have one name" in failed("cp", files.path("*.csv"), "one.csv")
    assert not (tmp_path / "one.csv").exists()


def test_mv(files):
    succeeded("mv", files.path("a.csv"), files.path("first.csv"))
    moved = json.loads(succeeded("mv", files.path("*.csv"), files.path("all/"), "--json"))
    assert moved == [
        {"source": files.path(name), "destination": files.path(f"all/{name}")}
        for name in ("b.csv", "first.csv")
    ]
    assert names(files) == ["all/b.csv", "all/first.csv", "c.txt", "d/e.csv"]
    assert "exists already" in failed("mv", files.path("c.txt"), files.path("all/b.csv"))
    succeeded("mv", "--overwrite", files.path("c.txt"), files.path("all/b.csv"))
    assert names(files) == ["all/b.csv", "all/first.csv", "d/e.csv"]
    assert "cannot have one name" in failed("mv", files.path("all/*"), files.path("x"))


def test_what_is_missing_is_said(files):
    for command in ("cp", "mv"):
        assert "no destination" in failed(command, files.path("a.csv"))
    assert "not a path on a volume" in failed("mv", "a.csv", files.path("x.csv"))


@pytest.mark.parametrize("command", ["mv", "cp"])
def test_two_files_to_one_name_are_refused_before_anything_is_done(files, command):
    succeeded("cp", "b.csv", files.path("f/e.csv"))
    before = names(files)
    refused = failed(command, files.path("**/e.csv"), files.path("g/"), "--overwrite")
    assert (
        f"{files.path('d/e.csv')} and {files.path('f/e.csv')} would both be {files.path('g/e.csv')}"
        in refused
    )
    assert names(files) == before


@pytest.mark.parametrize("command", ["mv", "cp"])
def test_into_a_directory_that_is_there(files, command):
    succeeded(command, files.path("a.csv"), files.path("b.csv"), files.path("d"))
    assert {"d/a.csv", "d/b.csv", "d/e.csv"} <= set(names(files))


def test_a_pipe_is_not_waited_for(files, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in failed("cp", str(tmp_path / "pipe"), files.path("x"))


def test_patterns_beside_snapshots(files):
    """They neither stop it midway nor come along."""
    succeeded("snapshot", files.path("a.csv@monday"))
    succeeded("mv", files.path("*"), files.path("g/"))
    assert names(files) == ["a.csv@monday", "d/e.csv", "g/a.csv", "g/b.csv", "g/c.txt"]
    succeeded("rm", files.path("**"))
    assert names(files) == ["a.csv@monday"]


def make_database_with_log(target, name, tmp_path):
    with rawduck.connect() as connection:
        connection.execute(f"ATTACH '{target.path(name)}' AS x; CREATE TABLE x.t AS FROM range(10); DETACH x")
    (tmp_path / "records").write_text(f"records of {name}")
    succeeded("cp", str(tmp_path / "records"), target.path(f"{name}.wal"))


def test_a_log_goes_with_its_database_whichever_is_named_first(file_target, tmp_path):
    for name in ("x.duckdb", "old/x.duckdb"):
        make_database_with_log(file_target, name, tmp_path)
    log, database = file_target.path("x.duckdb.wal"), file_target.path("x.duckdb")
    succeeded("mv", log, database, file_target.path("old/"), "--overwrite")
    assert names(file_target) == ["old/x.duckdb", "old/x.duckdb.wal"]
    succeeded("cp", file_target.path("old/x.duckdb.wal"), str(tmp_path / "found"))
    assert (tmp_path / "found").read_text() == "records of x.duckdb"


def test_a_log_of_one_database_does_not_come_to_lie_beside_another(file_target, tmp_path):
    for name in ("a/x.duckdb", "b/x.duckdb"):
        make_database_with_log(file_target, name, tmp_path)
    before = names(file_target)
    moved = [file_target.path("a/x.duckdb"), file_target.path("b/x.duckdb.wal")]
    refused = failed("mv", *moved, file_target.path("old/"), "--overwrite")
    assert "would be the log of a database that is moved there, too" in refused
    assert names(file_target) == before
