"""Whose target it is: locks of stock DuckDB, of other processes and the kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import duckdb
import pytest
import rawduck
from holders import TOOLS, WRITE_ONCE, held, unshared
from support import loop_device, make_target, one, run_cli, run_python, start_python

OPEN_FOR_WRITING = """
try:
    duckdb.connect(sys.argv[1]).execute("CREATE TABLE intruder (i INTEGER)")
    print("written")
except duckdb.IOException:
    print("refused")
"""


def opened_by_another(path) -> str:
    return run_python(OPEN_FOR_WRITING, str(path))


@pytest.fixture
def stock(con, tmp_path):
    """A database that stock DuckDB has attached in this process."""
    path = tmp_path / "stock.duckdb"
    con.execute(f"ATTACH '{path}' AS stock")
    con.execute("CREATE TABLE stock.t AS SELECT range AS i FROM range(100000)")
    con.execute("CHECKPOINT stock")
    return path


TOUCHES_STOCK = {
    "format": "CALL nvme_format('{path}')",
    "format-force": "CALL nvme_format('{path}', size := '32M', force := true)",
    "files": "FROM nvme_files('{path}')",
    "info": "FROM nvme_info('{path}')",
    "check": "FROM nvme_check('{path}')",
    "repair": "FROM nvme_check('{path}', repair := true)",
    "grow": "CALL nvme_grow('{path}', size := '64M')",
    "trim": "CALL nvme_trim('{path}')",
    "fdp": "FROM nvme_fdp('{path}')",
    "attach": "ATTACH 'nvme://{path}/x.duckdb' AS x",
    "attach-direct": "ATTACH 'direct://{path}' AS x",
    "read-direct": "FROM read_blob('direct://{path}')",
    "copy-from": "CALL nvme_copy('{path}', '{path}.copy')",
    "copy-to": "CALL nvme_copy('{path}.other', '{path}', overwrite := true)",
    "receive": "CALL nvme_receive('{path}', 'nvme://memory:m/y.duckdb')",
    "verify": "FROM nvme_verify('{path}')",
}


@pytest.mark.parametrize("statement", TOUCHES_STOCK.values(), ids=TOUCHES_STOCK)
def test_what_stock_has_open_here_is_not_touched(con, stock, statement):
    """Closing any descriptor of the file would drop stock DuckDB's lock without a word."""
    Path(f"{stock}.other").write_bytes(bytes(8192))
    size = stock.stat().st_size
    with pytest.raises(duckdb.Error, match=str(stock)):
        con.execute(statement.format(path=stock)).fetchall()
    assert opened_by_another(stock) == "refused"
    assert stock.stat().st_size == size
    con.execute("INSERT INTO stock.t VALUES (-1)")
    assert one(con, "SELECT count(*) FROM stock.t") == 100001


@pytest.mark.parametrize("options", ["", " (READ_ONLY)"])
def test_a_path_that_leads_through_a_database_leaves_stocks_lock(con, stock, options):
    """What was meant is looked for when no connection can be made: not in what stock DuckDB has open here."""
    con.execute(f"DETACH stock; ATTACH '{stock}' AS stock{options}")
    with pytest.raises(duckdb.Error):
        rawduck.connect(f"{stock}/x")
    assert opened_by_another(stock) == "refused"


def test_listing_devices_leaves_stocks_lock(con, stock):
    con.execute("FROM nvme_devices()").fetchall()
    assert opened_by_another(stock) == "refused"


ATTACHED_IN_BOTH = """
path = sys.argv[1]
with duckdb.connect() as stock:
    connection.execute(f"ATTACH 'direct://{path}' AS x (READ_ONLY)")
    stock.execute(f"ATTACH '{path}' AS x (READ_ONLY)")
    connection.execute("DETACH x")
    try:
        connection.execute(f"FROM nvme_files('{path}')")
    except duckdb.IOException as error:
        print(error, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("hide", ["--bind /dev/null /proc/locks", "-t tmpfs none /proc"])
def test_stock_keeps_its_lock_where_locks_are_not_shown(tmp_path, hide):
    path = tmp_path / "shared.duckdb"
    with duckdb.connect(path) as stock:
        stock.execute("CREATE TABLE t AS SELECT 1 AS i")
    container = unshared("--mount", f"mount {hide}")
    with start_python(ATTACHED_IN_BOTH, str(path), within=container) as child:
        assert "DETACH it there first" in child.stdout.readline(), child.stderr.read()
        assert opened_by_another(path) == "refused"


def test_stock_that_comes_later_keeps_its_lock(tmp_path):
    """Both read one file; when ours is detached, stock DuckDB's lock still keeps writers out."""
    path = tmp_path / "shared.duckdb"
    with duckdb.connect(path) as stock:
        stock.execute("CREATE TABLE t AS SELECT 1 AS i")
    with rawduck.connect() as ours, duckdb.connect() as stock:
        ours.execute(f"ATTACH 'direct://{path}' AS x (READ_ONLY)")
        assert one(ours, "SELECT count(*) FROM x.t") == 1
        stock.execute(f"ATTACH '{path}' AS x (READ_ONLY)")
        ours.execute("DETACH x")
        assert opened_by_another(path) == "refused"
        assert one(stock, "SELECT count(*) FROM x.t") == 1
        stock.execute("DETACH x")
        assert opened_by_another(path) == "written"
        # What was kept open for the lock's sake is closed with the next file.
        ours.execute(f"ATTACH 'direct://{path}' AS x (READ_ONLY)")
        ours.execute("DETACH x")
        assert not [link for link in descriptors() if link == str(path)]


def descriptors() -> list[str]:
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue
    return links


@pytest.mark.parametrize(
    "options", [[], ["--size", "32M"], ["--size", "128M"]], ids=["as-is", "less", "more"]
)
@pytest.mark.parametrize("what", ["volume", "stock"])
def test_formatting_what_another_process_has_open_changes_nothing(tmp_path, what, options):
    path = tmp_path / "disk"
    if what == "volume":
        with rawduck.connect() as connection:
            connection.execute(f"CALL nvme_format('{path}', size := '64M')")
    database = f"nvme://{path}/x.duckdb" if what == "volume" else str(path)
    with held(database) as child:
        size = path.stat().st_size
        result = run_cli("format", "--force", *options, str(path))
        assert result.returncode == 2
        assert str(child.pid) in result.stderr
        assert path.stat().st_size == size


@pytest.fixture
def small_file_system(tmp_path):
    """An ext4 file system of 64 MiB of this test's own."""
    mount = shutil.which("mount", path=TOOLS)
    with loop_device(tmp_path / "fs.img", 512, "64M") as device:
        subprocess.run([shutil.which("mkfs.ext4", path=TOOLS), "-q", device], check=True)
        folder = tmp_path / "mounted"
        folder.mkdir()
        result = subprocess.run([mount, device, folder], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            pytest.skip(f"no mount: {result.stderr.strip()}")
        try:
            yield folder
        finally:
            subprocess.run([shutil.which("umount", path=TOOLS), folder], check=True)


def free_blocks(folder: Path) -> int:
    return os.statvfs(folder).f_bfree


def test_a_format_that_does_not_fit_leaves_nothing(con, small_file_system):
    path = small_file_system / "new.rawduck"
    free = free_blocks(small_file_system)
    with pytest.raises(duckdb.IOException, match="cannot reserve"):
        con.execute(f"CALL nvme_format('{path}', size := '256M')")
    assert not path.exists()
    assert free_blocks(small_file_system) == free


def test_a_format_that_does_not_fit_leaves_a_database_as_it_was(con, small_file_system):
    path = small_file_system / "stock.duckdb"
    with duckdb.connect(path) as stock:
        stock.execute("CREATE TABLE t AS SELECT range AS i FROM range(100000)")
    size, free = path.stat().st_size, free_blocks(small_file_system)
    with pytest.raises(duckdb.IOException, match="cannot reserve"):
        con.execute(f"CALL nvme_format('{path}', size := '256M', force := true)")
    assert (path.stat().st_size, free_blocks(small_file_system)) == (size, free)
    with duckdb.connect(path) as stock:
        assert one(stock, "SELECT count(*) FROM t") == 100000


def test_a_forced_format_may_make_the_file_smaller_or_larger(con, tmp_path):
    path = tmp_path / "disk.rawduck"
    for size in ("64M", "32M", "96M"):
        con.execute(f"CALL nvme_format('{path}', size := '{size}', force := true)")
        assert path.stat().st_size == int(size[:-1]) << 20
        assert one(con, f"SELECT capacity FROM nvme_info('{path}')") == path.stat().st_size
        assert not con.execute(f"FROM nvme_check('{path}') WHERE severity <> 'ok'").fetchall()


def test_a_holder_that_a_container_cannot_see(file_target):
    """It is not taken for one that has ended, whose requests would be waited for."""
    container = unshared("--pid --fork --mount-proc", "true")
    with held(file_target.path("x.duckdb")):
        message = run_python(WRITE_ONCE, file_target.name, within=container)
    assert "another process holds a lock on it, or requests of a process that has ended" in message


MAIN_THREAD_ENDS = """
import ctypes, threading

def hold():
    with open(f"/proc/self/task/{os.getpid()}/status") as status:
        while "State:\tZ" not in status.read():
            status.seek(0)
            time.sleep(0.01)
    print("ready", flush=True)
    sys.stdin.readline()
    os._exit(0)

connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
connection.execute("CREATE TABLE x.t AS SELECT 1 AS i")
threading.Thread(target=hold).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_holder_whose_first_thread_has_ended(file_target, con):
    with start_python(MAIN_THREAD_ENDS, file_target.path("x.duckdb")) as child:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        with pytest.raises(duckdb.IOException, match=f"process {child.pid} .*holds a lock on it"):
            con.execute(f"ATTACH '{file_target.path('x.duckdb')}' AS x")
        child.kill()
        child.wait()
        con.execute(f"ATTACH '{file_target.path('x.duckdb')}' AS x")


def test_a_file_under_a_mounted_loop_device_is_refused(con, small_file_system, tmp_path):
    image = tmp_path / "fs.img"
    with pytest.raises(duckdb.Error, match="mounted"):
        con.execute(f"CALL nvme_format('{image}', force := true)")
    (small_file_system / "still").write_text("there")


@pytest.mark.parametrize("kind", ["memory-4096", "file-4096", "loop-4096"])
def test_readers_share_and_writers_take_turns(kind, tmp_path):
    """The lock goes from shared to exclusive and back as often as it is asked to."""
    with make_target(kind, tmp_path, "64M") as target, rawduck.connect() as first:
        for turn in range(5):
            first.execute(f"ATTACH '{target.path('x.duckdb')}' AS x")
            first.execute(f"CREATE OR REPLACE TABLE x.t AS SELECT {turn} AS i")
            first.execute("DETACH x")
            first.execute(f"ATTACH '{target.path('x.duckdb')}' AS x (READ_ONLY)")
            if not kind.startswith("memory"):
                code = """
                connection.execute(f"ATTACH '{sys.argv[1]}' AS x (READ_ONLY)")
                print(connection.execute("FROM x.t").fetchone()[0])
                """
                assert run_python(code, target.path("x.duckdb")) == str(turn)
            assert one(first, "FROM x.t") == turn
            first.execute("DETACH x")


def test_format_target_twice(tmp_path):
    with make_target("loop-512", tmp_path, "64M") as target:
        with rawduck.connect() as connection, pytest.raises(duckdb.Error, match="rawduck volume"):
            connection.execute(f"CALL nvme_format('{target.name}')")
        with rawduck.connect() as connection:
            connection.execute(f"CALL nvme_format('{target.name}', force := true)")
