"""`rawduck.connect` behaves as `duckdb.connect`: cursors, threads, connections, settings, the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest
import rawduck
from support import file_names, one, run_python


@pytest.fixture
def path(file_target):
    path = file_target.path("x.duckdb")
    with rawduck.connect(path) as con:
        con.execute("CREATE TABLE t AS SELECT 42 AS v")
    return path


def test_a_cursor_is_on_the_same_database(path):
    with rawduck.connect(path) as con, con.cursor() as cursor, cursor.cursor() as another:
        assert one(cursor, "SELECT v FROM t") == one(another, "SELECT v FROM x.main.t") == 42


def test_threads_with_a_cursor_each(path):
    def insert(number: int) -> None:
        with con.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (?)", [number])

    with rawduck.connect(path) as con:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(insert, range(20)))
        assert one(con, "SELECT count(*) FROM t") == 21


def test_connecting_again_gives_the_same_database(path):
    with rawduck.connect(path) as first, rawduck.connect(path) as second, duckdb.connect(path) as third:
        first.execute("INSERT INTO t VALUES (43)")
        assert one(second, "SELECT count(*) FROM t") == one(third, "SELECT count(*) FROM t") == 2


def test_the_volume_is_released_with_the_last_connection(path, file_target, con):
    first, second = rawduck.connect(path), rawduck.connect(path)
    open_volumes = "SELECT count(*) FROM nvme_volumes()"
    first.close()
    assert one(con, open_volumes) == 1
    cursor = second.cursor()
    assert one(cursor, "SELECT v FROM t") == 42
    second.close()  # and its cursors
    assert one(con, open_volumes) == 0
    child = "print(rawduck.connect(sys.argv[1]).execute('SELECT v FROM t').fetchone()[0])"
    assert run_python(child, path) == "42"


def test_a_connection_has_no_result_of_its_own_yet(path):
    """What looks whether the extension is there leaves nothing behind."""
    with rawduck.connect(path) as con:
        assert con.description is None
        with con.cursor() as cursor:
            assert cursor.execute("SELECT v FROM t").fetchone() == (42,)
        assert con.sql("FROM t").fetchall() == [(42,)]


@pytest.mark.parametrize("config", [{}, {"nvme_engine": "posix"}, {"nvme_prefetch": "false", "threads": 1}])
def test_settings_of_rawduck_in_config(path, config):
    with rawduck.connect(path, config=config) as con, rawduck.connect(path, False, config) as again:
        for name, value in config.items():
            assert str(one(con, f"SELECT current_setting('{name}')")).lower() == str(value)
        if "nvme_engine" in config:
            assert one(again, "SELECT engine FROM nvme_volumes()") == "posix"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"nvme_engine": "steam"}, "engine 'steam' is unknown"),
        ({"nvme_prefetch": "perhaps"}, "nvme_prefetch"),
        ({"nvme_spill_buffer": "1 PB"}, "nvme_spill_buffer"),
        ({"nvme_nothing": 1}, "nvme_nothing"),
    ],
)
@pytest.mark.parametrize("in_memory", [True, False])
def test_wrong_settings_in_config(path, config, message, in_memory):
    with pytest.raises(duckdb.Error, match=message):
        rawduck.connect(None if in_memory else path, config=config)
    with rawduck.connect(path) as con:
        assert one(con, "SELECT v FROM t") == 42


def test_another_config_is_refused_as_by_duckdb(path):
    with rawduck.connect(path), pytest.raises(duckdb.ConnectionException, match="different configuration"):
        rawduck.connect(path, config={"threads": 1})


@pytest.mark.parametrize("options", [{"read_only": True}, {"config": {"access_mode": "READ_ONLY"}}])
def test_read_only(path, options):
    with rawduck.connect(path, **options) as con:
        assert one(con, "SELECT v FROM t") == 42
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            con.execute("INSERT INTO t VALUES (43)")


def test_readers_in_two_processes_spill(path, tmp_path, monkeypatch):
    """To a folder, as databases in memory do: the volume is not written."""
    monkeypatch.chdir(tmp_path)
    code = """
    config = {"memory_limit": "50MB", "threads": 1}
    con = rawduck.connect(sys.argv[1], read_only=True, config=config)
    con.execute("SET enable_progress_bar = false")
    con.execute("CREATE TEMP TABLE s AS SELECT range AS i, hash(range) AS h FROM range(3000000) ORDER BY h")
    print(con.execute("SELECT count(*) FROM s").fetchone()[0], os.path.isdir(".tmp"))
    """
    with rawduck.connect(path, read_only=True) as con:
        assert run_python(code, path) == "3000000 True"
        assert one(con, "SELECT v FROM t") == 42


@pytest.mark.parametrize("scheme", ["nvme", "direct"])
def test_temporary_files_lie_beside_the_database(path, file_target, scheme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = path if scheme == "nvme" else "direct://relative.duckdb"
    config = {"memory_limit": "50MB", "threads": 1}
    with rawduck.connect(path, config=config) as con:
        con.execute("CREATE TEMP TABLE s AS SELECT range i, hash(range) h FROM range(3000000) ORDER BY h")
        if scheme == "nvme":
            assert any(name.startswith("x.duckdb.tmp/duckdb_temp") for name in file_names(con, file_target))
        else:
            assert any((tmp_path / "relative.duckdb.tmp").iterdir())


def test_without_access_to_anything_else(path, tmp_path):
    config = {"enable_external_access": False}
    with rawduck.connect(path, config=config) as con:
        con.execute("INSERT INTO t VALUES (43); CHECKPOINT")
        with pytest.raises(duckdb.PermissionException):
            con.execute(f"ATTACH '{path}2' AS other")
        with pytest.raises(duckdb.PermissionException):
            con.execute(f"COPY t TO '{tmp_path}/t.csv'")


@pytest.mark.parametrize("name", ["relative.duckdb", "folder/relative.duckdb"])
def test_a_relative_path_without_access_to_anything_else(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    config = {"enable_external_access": False, "memory_limit": "50MB", "threads": 1}
    with rawduck.connect(f"direct://{name}", config=config) as con:
        con.execute("CREATE TABLE t AS SELECT 42 AS v; CHECKPOINT; INSERT INTO t VALUES (43)")
        con.execute("CREATE TEMP TABLE s AS SELECT range i, hash(range) h FROM range(3000000) ORDER BY h")
        assert any((tmp_path / f"{name}.tmp").iterdir())
        with pytest.raises(duckdb.PermissionException):
            con.execute("COPY t TO 'direct://t.csv'")
    with rawduck.connect(f"direct://{name}", config=config) as con:
        assert con.execute("FROM t").fetchall() == [(42,), (43,)]


@pytest.mark.parametrize("arguments", [(), (":memory:",), (None,)])
def test_databases_in_memory(arguments):
    with rawduck.connect(*arguments) as con, rawduck.connect(*arguments) as other:
        con.execute("CREATE TABLE t AS SELECT 42 AS v")
        assert one(con.cursor(), "SELECT v FROM t") == 42
        with pytest.raises(duckdb.CatalogException):
            other.execute("FROM t")


def test_libraries_that_connect_by_themselves(path):
    code = """
    rawduck.register()
    rawduck.register()
    with duckdb.connect(sys.argv[1]) as con:
        print(*con.execute("SELECT v, current_database() FROM t").fetchone())
    """
    assert run_python(code, path, before="") == "42 x"


def test_an_extension_of_another_release(monkeypatch, tmp_path):
    (tmp_path / "rawduck.duckdb_extension").touch()
    (tmp_path / "librawduck_host.so").write_bytes(b"no library")
    monkeypatch.setattr(rawduck.connection, "extension_path", lambda: tmp_path / "rawduck.duckdb_extension")
    with pytest.raises(rawduck.RawduckError, match="cannot be used with DuckDB"):
        rawduck.register()


def test_a_database_that_was_open_before(tmp_path):
    """It is the process's one and only, so it takes the extension where it allows that."""
    code = """
    path = sys.argv[1]
    strict = duckdb.connect(path)
    try:
        rawduck.connect(path)
    except rawduck.RawduckError as error:
        print("refused" if "unsigned" in str(error) else error)
    strict.close()
    with rawduck.connect(path) as con:
        print(con.execute("SELECT count(*) FROM nvme_volumes()").fetchone()[0])
    """
    assert run_python(code, str(tmp_path / "x.duckdb"), before="") == "refused\n0"
