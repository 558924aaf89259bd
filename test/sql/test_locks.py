"""Whose target it is: locks of stock DuckDB, of other processes and the kernel, other names of one device."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
import rawduck
from support import KINDS, loop_device, make_target, one, run_cli, run_python, start_python

TOOLS = "/usr/sbin:/sbin:/usr/bin:/bin"

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
    "trim": "CALL nvme_trim('{path}')",
    "fdp": "FROM nvme_fdp('{path}')",
    "attach": "ATTACH 'nvme://{path}/x.duckdb' AS x",
    "attach-direct": "ATTACH 'direct://{path}' AS x",
    "read-direct": "FROM read_blob('direct://{path}')",
    "copy-from": "CALL nvme_copy('{path}', '{path}.copy')",
    "copy-to": "CALL nvme_copy('{path}.other', '{path}', overwrite := true)",
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


def test_listing_devices_leaves_stocks_lock(con, stock):
    con.execute("FROM nvme_devices()").fetchall()
    assert opened_by_another(stock) == "refused"


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


HOLD = """
connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
connection.execute("CREATE OR REPLACE TABLE x.t AS SELECT range AS i FROM range(1000)")
print("ready", flush=True)
sys.stdin.readline()
connection.execute("INSERT INTO x.t VALUES (-1)")
print(connection.execute("SELECT count(*) FROM x.t").fetchone()[0], flush=True)
connection.execute("DETACH x")
"""


@contextmanager
def held(path: str):
    """Another process has the database attached for writing. Afterwards it commits once more and detaches."""
    with start_python(HOLD, path) as child:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        yield child
        output, errors = child.communicate("\n", timeout=60)
        assert (child.returncode, output) == (0, "1001\n"), errors


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


@pytest.fixture
def device(tmp_path):
    """A loop device with a volume on it, and the path of its file."""
    image = tmp_path / "disk.img"
    with loop_device(image, 512, "64M") as name:
        with rawduck.connect() as connection:
            connection.execute(f"CALL nvme_format('{name}')")
        yield name, image


@pytest.fixture
def second_node(device, tmp_path):
    """The same device under another node, as containers have it."""
    path = tmp_path / "node"
    try:
        os.mknod(path, stat.S_IFBLK | 0o600, os.stat(device[0]).st_rdev)
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        pytest.skip(f"no device node can be made here: {error}")
    return path


@pytest.mark.parametrize("options", ["", "(READ_ONLY)"], ids=["write", "read"])
def test_a_device_under_another_node_is_the_same_device(con, device, second_node, options):
    with held(f"nvme://{device[0]}/x.duckdb") as child, pytest.raises(duckdb.IOException) as caught:
        con.execute(f"ATTACH 'nvme://{second_node}/x.duckdb' AS x {options}")
    assert str(child.pid) in str(caught.value)
    con.execute(f"ATTACH 'nvme://{second_node}/x.duckdb' AS x {options}")
    assert one(con, "SELECT count(*) FROM x.t") == 1001


@pytest.mark.parametrize("statement", ["CALL nvme_format('{}', force := true)", "CALL nvme_trim('{}')"])
def test_functions_on_another_node_are_refused(con, device, second_node, statement):
    with held(f"nvme://{device[0]}/x.duckdb"), pytest.raises(duckdb.IOException, match=str(second_node)):
        con.execute(statement.format(second_node))


def test_mkfs_and_mount_are_refused_by_the_kernel(device):
    with held(f"nvme://{device[0]}/x.duckdb"):
        result = subprocess.run(
            [shutil.which("mkfs.ext4", path=TOOLS), "-q", "-F", device[0]],
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode != 0
        assert "in use" in result.stderr


def test_a_loop_device_and_its_file_are_one(con, device):
    name, image = device
    with held(f"nvme://{name}/x.duckdb") as child:
        for path in (f"nvme://{image}/x.duckdb", f"nvme://{image}/y.duckdb"):
            with pytest.raises(duckdb.IOException, match=str(child.pid)):
                con.execute(f"ATTACH '{path}' AS x")
    with held(f"nvme://{image}/x.duckdb") as child, pytest.raises(duckdb.IOException, match=str(child.pid)):
        con.execute(f"ATTACH 'nvme://{name}/x.duckdb' AS x")


def test_a_file_under_a_mounted_loop_device_is_refused(con, small_file_system, tmp_path):
    image = tmp_path / "fs.img"
    with pytest.raises(duckdb.Error, match="mounted"):
        con.execute(f"CALL nvme_format('{image}', force := true)")
    (small_file_system / "still").write_text("there")


@pytest.fixture
def partitions(tmp_path):
    """A loop device with two partitions, and these."""
    with loop_device(tmp_path / "parts.img", 512, "128M") as disk:
        names = [f"{disk}p{number}" for number in (1, 2)]
        for number in (1, 2):
            add = [
                shutil.which("addpart", path=TOOLS),
                disk,
                str(number),
                str(number * 120000 - 110000),
                "98304",
            ]
            result = subprocess.run(add, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                pytest.skip(f"no partitions of loop devices here: {result.stderr.strip()}")
        try:
            yield disk, *names
        finally:
            for number in (1, 2):
                subprocess.run([shutil.which("delpart", path=TOOLS), disk, str(number)], check=True)


def test_a_disk_and_its_partitions_exclude_each_other(con, partitions, tmp_path):
    disk, first, second = partitions
    for partition in (first, second):
        con.execute(f"CALL nvme_format('{partition}')")
    with held(f"nvme://{first}/x.duckdb"):
        with pytest.raises(duckdb.Error, match=disk):
            con.execute(f"CALL nvme_format('{disk}', force := true)")
        with pytest.raises(duckdb.Error, match=r"parts\.img"):
            con.execute(f"CALL nvme_format('{tmp_path / 'parts.img'}', force := true)")
        con.execute(f"ATTACH 'nvme://{second}/y.duckdb' AS y")  # the neighbour is free
        con.execute("CREATE TABLE y.t AS SELECT 1 AS i")
        con.execute("DETACH y")
    con.execute(f"CALL nvme_format('{disk}', force := true)")
    with held(f"nvme://{disk}/x.duckdb"), pytest.raises(duckdb.Error, match=first):
        con.execute(f"CALL nvme_format('{first}', force := true)")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.endswith("4096")])
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


def test_a_process_that_ends_leaves_the_device_free(device):
    for _ in range(3):
        with start_python(HOLD, f"nvme://{device[0]}/x.duckdb") as child:
            assert child.stdout.readline() == "ready\n", child.stderr.read()
            child.kill()
            child.wait()
        with rawduck.connect(f"nvme://{device[0]}/x.duckdb") as connection:
            assert one(connection, "SELECT count(*) FROM t") == 1000
