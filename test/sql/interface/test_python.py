"""The Python package: connect, load, extension_path."""

from __future__ import annotations

import os

import duckdb
import pytest
import rawduck
from support import one, run_python


def test_connect_gives_an_ordinary_connection():
    with rawduck.connect() as con:
        assert type(con) is duckdb.DuckDBPyConnection
        assert one(con, "SELECT current_database()") == "memory"
        assert one(con, "SELECT count(*) FROM nvme_volumes() WHERE target = 'memory:nothing'") == 0


@pytest.mark.parametrize(
    ("file", "name"), [("sales.duckdb", "sales"), ("a/b/q4.report.db", "q4"), ("temp.duckdb", "temp_db")]
)
def test_the_main_database_has_the_name_that_duckdb_gives_it(target, file, name):
    with rawduck.connect(target.path(file)) as con:
        assert one(con, "SELECT current_database()") == name
        assert con.execute("SELECT database_name FROM duckdb_databases() WHERE NOT internal").fetchall() == [
            (name,)
        ]
        con.execute("CREATE TABLE t AS SELECT 42 AS v")
    with rawduck.connect(target.path(file)) as con:
        assert one(con, "SELECT v FROM t") == 42


def test_connect_to_ordinary_files(tmp_path):
    with rawduck.connect(tmp_path / "x.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT 42 AS v")
    with duckdb.connect(str(tmp_path / "x.duckdb")) as stock:
        assert one(stock, "SELECT v FROM t") == 42


def test_config_wins():
    with rawduck.connect(config={"threads": 1, "block_allocator_memory": "64MiB"}) as con:
        assert one(con, "SELECT current_setting('threads')") == 1
        assert one(con, "SELECT current_setting('block_allocator_memory')") == "64.0 MiB"


def test_unsigned_extensions_stay_forbidden(file_target):
    with rawduck.connect(file_target.path("x.duckdb"), config={"allow_unsigned_extensions": False}) as con:
        assert one(con, "SELECT current_setting('allow_unsigned_extensions')") is False


def test_failed_connect_leaves_nothing_open(file_target):
    for _ in range(3):
        with pytest.raises(duckdb.Error):
            rawduck.connect(file_target.path("../x"))
    with rawduck.connect(file_target.path("x.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT 42 AS v")


def test_a_path_that_names_the_volume_itself(file_target):
    with pytest.raises(duckdb.IOException, match=f"rawduck volume: write nvme://{file_target.name}/<name>"):
        rawduck.connect(file_target.name)


def test_a_relative_path_on_a_volume():
    """The error names what was given, not the temporary directory beside it, and what to write instead."""
    meant = f"absolute path, as in nvme://{os.getcwd()}/disk.rawduck/x.duckdb,"
    with pytest.raises(duckdb.Error, match=f"nvme://disk.rawduck/x.duckdb: .*{meant}"):
        rawduck.connect("nvme://disk.rawduck/x.duckdb")


def test_a_volume_without_a_file(file_target):
    with pytest.raises(duckdb.Error, match=f"{file_target.name}: the path names a volume but no file"):
        rawduck.connect(f"nvme://{file_target.name}")


@pytest.mark.parametrize("path", ["nvme:/dev/x/y.duckdb", "nvme:y.duckdb", "direct:y.duckdb"])
def test_one_slash_too_few(path):
    with pytest.raises(duckdb.Error, match=f"^{path}: .* write {path.replace(':', '://')}$"):
        rawduck.connect(path)


def test_what_notebooks_complete():
    """In a process that has used nothing of it yet."""
    run_python("assert {*rawduck.__all__, '__version__'} <= set(dir(rawduck))")


def test_load(target):
    """Into a database of a process that has registered nothing."""
    code = """
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as con:
        assert rawduck.load(con) is con
        rawduck.load(con)
        con.execute("ATTACH 'nvme://memory:loaded/x.duckdb' AS x; CREATE TABLE x.t AS SELECT 42 AS v")
        print(con.execute("SELECT v FROM x.t").fetchone()[0])
    """
    assert run_python(code, before="") == "42"


def test_load_into_a_connection_that_forbids_it():
    code = """
    try:
        rawduck.load(duckdb.connect())
    except rawduck.RawduckError as error:
        print(error)
    """
    assert "allow_unsigned_extensions" in run_python(code, before="")


def test_extension_path():
    path = rawduck.extension_path()
    assert path.is_file()
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as con:
        con.execute(f"LOAD '{path}'")
        query = (
            "SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'rawduck' AND loaded"
        )
        assert one(con, query) == rawduck.__version__


def test_exit_without_closing(durable_target):
    """A script that ends with its connection open loses nothing that it committed."""
    code = """
    con = rawduck.connect(sys.argv[1])
    con.execute("CREATE TABLE IF NOT EXISTS t (v INTEGER)")
    con.execute("INSERT INTO t SELECT coalesce(max(v), 0) + 1 FROM t")
    """
    for _ in range(3):
        run_python(code, durable_target.path("x.duckdb"))
    with rawduck.connect(durable_target.path("x.duckdb")) as con:
        assert con.execute("SELECT v FROM t ORDER BY v").fetchall() == [(1,), (2,), (3,)]
