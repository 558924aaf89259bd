"""The xNVMe engine: what is said where it is not built, and where it is, databases through its interfaces."""

from __future__ import annotations

import shutil
import subprocess
import sys

import duckdb
import pytest
import rawduck
from rawduck.connection import extension_path

MODULE = "librawduck_xnvme.so"
ON_FILES = ("io_uring", "libaio", "posix", "thrpool", "emu", "psync")
#: xNVMe may have been built without them.
OPTIONAL = ("io_uring", "libaio", "posix")


def test_an_absent_engine_says_what_it_looked_for_and_how_to_get_it(tmp_path):
    installed = extension_path()
    for name in (installed.name, "librawduck_host.so"):
        shutil.copy(installed.with_name(name), tmp_path)
    database = tmp_path / "x.duckdb"
    code = f"""
import duckdb
connection = duckdb.connect(config={{"allow_unsigned_extensions": True}})
connection.execute("LOAD '{tmp_path / installed.name}'; SET nvme_engine = 'xnvme:io_uring'")
try:
    connection.execute("ATTACH 'direct://{database}' AS x; CREATE TABLE x.t AS SELECT 1")
except duckdb.Error as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert str(tmp_path / MODULE) in result.stdout
    assert "pkg-config finds xnvme" in result.stdout
    assert "not available" in result.stdout


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("xnvme", "xnvme:io_uring_cmd, xnvme:io_uring"),
        ("xnvme:floppy", "xnvme:io_uring_cmd, xnvme:io_uring"),
        ("xnvme:nil", "without carrying them out"),
        ("xnvme:upcie", "not been tested enough"),
    ],
)
def test_an_interface_that_cannot_be_used_is_refused_when_it_is_set(con, engine, text):
    with pytest.raises(duckdb.Error, match=text):
        con.execute(f"SET nvme_engine = '{engine}'")


def test_a_driver_in_the_process_is_refused_on_what_the_kernel_has(con, file_target):
    con.execute("SET nvme_engine = 'xnvme:spdk'")
    with pytest.raises(duckdb.Error, match=r"rawduck vfio bind.*vfio:0000:01:00\.0n1"):
        con.execute(f"ATTACH '{file_target.path('x.duckdb')}' AS x")


TABLE = """
CREATE TABLE t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(300000);
CHECKPOINT;
INSERT INTO t VALUES (-1, 'committed')
"""
QUERY = "SELECT count(*), sum(v), max(s), min(s), sum(hash(s)) FROM t"


def connect(engine: str, mode: str, path: str) -> duckdb.DuckDBPyConnection:
    connection = rawduck.connect()
    connection.execute(f"SET nvme_engine = '{engine}'; SET nvme_queues = 'mode={mode}'")
    connection.execute(f"ATTACH '{path}' AS x; USE x")
    return connection


def require(interface: str, path: str) -> None:
    """Skips, with the reason, where the engine is not built, or xNVMe was built without the interface."""
    if not extension_path().with_name(MODULE).exists():
        pytest.skip(f"{MODULE} is not built: pkg-config finds no xnvme")
    if interface in OPTIONAL:
        try:
            connect(f"xnvme:{interface}", "sync", path).close()
        except duckdb.NotImplementedException as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("interface", ON_FILES)
def test_databases_through_every_interface_in_every_queue_mode(file_target, interface):
    require(interface, file_target.path("try.duckdb"))
    with duckdb.connect() as stock:
        stock.execute(TABLE)
        expected = stock.execute(QUERY).fetchall()
    for mode in ("sync", "single", "pool", "thread"):
        path = file_target.path(f"{mode}.duckdb")
        with connect(f"xnvme:{interface}", mode, path) as connection:
            columns = "engine, queue_mode, engine_reason"
            row = connection.execute(f"SELECT {columns} FROM nvme_volumes()").fetchone()
            assert row[:2] == (f"xnvme:{interface}", mode)
            assert row[2].startswith("asked for; xNVMe ")
            connection.execute(TABLE)
        with connect(f"xnvme:{interface}", mode, path) as connection:
            assert connection.execute(QUERY).fetchall() == expected


def test_a_file_through_direct_and_xnvme_is_an_ordinary_database(tmp_path):
    path = tmp_path / "x.duckdb"
    require("io_uring", f"direct://{path}")
    with connect("xnvme:io_uring", "thread", f"direct://{path}") as connection:
        connection.execute("CREATE TABLE x.t AS SELECT range AS v FROM range(500000)")
    with duckdb.connect(str(path), read_only=True) as stock:
        assert stock.execute("SELECT count(*), sum(v) FROM t").fetchone() == (500000, 124999750000)
