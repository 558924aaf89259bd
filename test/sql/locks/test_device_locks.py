"""Locks of devices: their nodes, the loop devices over them and below them, disks and partitions."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
import rawduck
from holders import HOLD, TOOLS, WRITE_ONCE, fill, held, unshared
from support import loop_device, one, run_cli, run_python, start_python


@pytest.fixture
def device(tmp_path):
    """A loop device with a volume on it, and the path of its file."""
    image = tmp_path / "disk.img"
    with loop_device(image, 512, "64M") as name:
        with rawduck.connect() as connection:
            connection.execute(f"CALL nvme_format('{name}')")
        yield name, image


@pytest.fixture
def lone_device(device):
    """As real disks are: there is no file below that is locked with it."""
    device[1].unlink()
    return device[0]


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


def test_a_reader_keeps_writers_out_at_every_node(lone_device, second_node, con):
    fill(f"nvme://{lone_device}/x.duckdb")
    con.execute(f"ATTACH 'nvme://{lone_device}/x.duckdb' AS x (READ_ONLY)")
    assert f"process {os.getpid()} " in run_python(WRITE_ONCE, str(second_node))
    # The one that was refused has left the reader's lock as it was, and nothing of its own.
    assert "holds a lock" in run_python(WRITE_ONCE, str(second_node))
    con.execute("DETACH x")
    assert run_python(WRITE_ONCE, str(second_node)) == "written"


def test_a_reader_that_missed_a_writer_does_not_write(lone_device, second_node, con):
    """With a /sys of its own, a container does not see that the device is being read elsewhere."""
    container = unshared("--mount --net", "mount -t sysfs none /sys")
    fill(f"nvme://{lone_device}/x.duckdb")
    con.execute(f"ATTACH 'nvme://{lone_device}/x.duckdb' AS x (READ_ONLY)")
    assert run_python(WRITE_ONCE, str(second_node), within=container) == "written"
    for _ in range(2):
        with pytest.raises(duckdb.IOException, match=f"{lone_device}: another process has written .* again"):
            con.execute(f"ATTACH 'nvme://{lone_device}/y.duckdb' AS y")
    con.execute("DETACH x")
    con.execute(f"ATTACH 'nvme://{lone_device}/y.duckdb' AS y")
    con.execute("CREATE TABLE y.t AS SELECT 1 AS i")
    con.execute(f"ATTACH 'nvme://{lone_device}/x.duckdb' AS x")
    assert one(con, "SELECT count(*) FROM x.t") == 1001
    assert one(con, "SELECT count(*) FROM x.more") == 1


def test_without_sys_two_devices_are_two(lone_device, second_node, tmp_path):
    container = unshared("--mount", "mount -t tmpfs none /sys")
    with loop_device(tmp_path / "other.img", 512, "64M") as other, rawduck.connect() as con:
        con.execute(f"CALL nvme_format('{other}')")
        with start_python(HOLD, f"nvme://{lone_device}/x.duckdb", within=container) as child:
            assert child.stdout.readline() == "ready\n", child.stderr.read()
            assert run_python(WRITE_ONCE, other, within=container) == "written"
            assert "has the device open for writing" in run_python(
                WRITE_ONCE, str(second_node), within=container
            )


def test_a_writer_that_goes_on_with_its_epoch_is_noticed(lone_device, second_node, con):
    """It appends to its log; the superblocks stay as they were when the reader mounted."""
    container = unshared("--mount --net", "mount -t sysfs none /sys")
    code = """
    path = f"nvme://{sys.argv[1]}/"
    connection.execute(f"ATTACH '{path}x.duckdb' AS x")
    connection.execute("CREATE TABLE x.t AS SELECT 1 AS i")
    connection.execute(f"ATTACH '{path}y.duckdb' AS y")
    connection.execute("CREATE TABLE y.t AS SELECT 1 AS i")
    connection.execute("DETACH x")
    connection.execute(f"ATTACH '{path}x.duckdb' AS x (READ_ONLY)")
    connection.execute("DETACH y")
    print("ready", flush=True)
    sys.stdin.readline()
    connection.execute(f"ATTACH '{path}y.duckdb' AS y")
    connection.execute("INSERT INTO y.t VALUES (2)")
    connection.execute("DETACH y")
    print("written", flush=True)
    sys.stdin.readline()
    """
    with start_python(code, str(second_node), within=container) as child:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        con.execute(f"ATTACH 'nvme://{lone_device}/x.duckdb' AS x (READ_ONLY)")
        epoch = one(con, f"SELECT epoch FROM nvme_info('{lone_device}')")
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "written\n", child.stderr.read()
        with pytest.raises(duckdb.IOException, match="another process has written"):
            con.execute(f"ATTACH 'nvme://{lone_device}/z.duckdb' AS z")
        con.execute("DETACH x")
        assert one(con, f"SELECT epoch FROM nvme_info('{lone_device}')") == epoch
        con.execute(f"ATTACH 'nvme://{lone_device}/y.duckdb' AS y (READ_ONLY)")
        assert one(con, "SELECT count(*) FROM y.t") == 2


def test_a_partition_that_is_read_keeps_writers_off_its_disk(partitions, tmp_path, con):
    disk, first, second = partitions
    (tmp_path / "parts.img").unlink()  # the locks on the file below would do it, too
    con.execute(f"CALL nvme_format('{first}')")
    fill(f"nvme://{first}/x.duckdb")
    con.execute(f"ATTACH 'nvme://{first}/x.duckdb' AS x (READ_ONLY)")
    result = run_cli("format", "--force", disk)
    assert (result.returncode, str(os.getpid()) in result.stderr) == (2, True), result.stderr
    result = run_cli("format", "--force", "--yes", second)  # the neighbour is free
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "statement", ["CALL nvme_format('{}', force := true)", "CALL nvme_grow('{}')", "CALL nvme_trim('{}')"]
)
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


def test_another_name_of_what_this_process_has_open(con, device):
    name, image = device
    con.execute(f"ATTACH 'nvme://{name}/x.duckdb' AS x")
    with pytest.raises(
        duckdb.IOException, match=r"under another name \(nvme_volumes\(\) has the one in use\)"
    ):
        con.execute(f"ATTACH 'nvme://{image}/y.duckdb' AS y")
    assert con.sql("SELECT target FROM nvme_volumes()").fetchall() == [(name,)]


@contextmanager
def another_loop(below, *options: str):
    """One more loop device over a file or device that there is."""
    losetup = shutil.which("losetup", path=TOOLS)
    command = [losetup, "--find", "--show", "--sector-size", "512", *options, str(below)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    name = result.stdout.strip()
    try:
        yield name
    finally:
        subprocess.run([losetup, "--detach", name], check=True)


@pytest.mark.parametrize("what", ["file", "node"])
def test_a_loop_device_over_a_loop_device_is_the_same_device(device, second_node, what):
    name, image = device
    below = image if what == "file" else second_node
    if what == "node":
        image.unlink()
    with another_loop(name, "--direct-io=on") as top, rawduck.connect() as con:
        for holder, other in ((top, below), (below, top)):
            with held(f"nvme://{holder}/x.duckdb") as child:
                for options in ("", "(READ_ONLY)"):
                    with pytest.raises(duckdb.IOException, match=str(child.pid)):
                        con.execute(f"ATTACH 'nvme://{other}/x.duckdb' AS x {options}")


def test_a_loop_device_over_a_loop_device_needs_direct_io(device):
    """Otherwise it reads what the page cache has of the lower one, whatever the file below has got since."""
    name, image = device
    with another_loop(name) as top, rawduck.connect() as con:
        for options in ("", "(READ_ONLY)"):
            with pytest.raises(duckdb.Error, match=f"losetup --direct-io=on {top}"):
                con.execute(f"ATTACH 'nvme://{top}/x.duckdb' AS x {options}")
        subprocess.run([shutil.which("losetup", path=TOOLS), "--direct-io=on", top], check=True)
        for writer, reader in ((top, image), (image, top), (top, name), (name, top)):
            con.execute(f"ATTACH 'nvme://{writer}/x.duckdb' AS x")
            con.execute("CREATE OR REPLACE TABLE x.t AS SELECT hash(range) AS v FROM range(100000)")
            con.execute(f"DETACH x; ATTACH 'nvme://{reader}/x.duckdb' AS x (READ_ONLY)")
            assert one(con, "SELECT count(*) FROM x.t") == 100000
            con.execute("DETACH x")


@pytest.mark.parametrize("what", ["file", "device", "sibling"])
def test_a_loop_device_that_is_mounted_above_is_found(device, what):
    """What is mounted there is held exclusively, and the kernel writes to it."""
    name, image = device
    with another_loop(name) as middle, another_loop(middle) as top, another_loop(image) as sibling:
        target = {"file": image, "device": name, "sibling": sibling}[what]
        with rawduck.connect() as con:
            descriptor = os.open(top, os.O_RDONLY | os.O_EXCL)
            try:
                with pytest.raises(duckdb.IOException, match=f"{top}, and in use there"):
                    con.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x")
            finally:
                os.close(descriptor)
            con.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x")


@pytest.mark.parametrize("options", ["", "(READ_ONLY)"], ids=["write", "read"])
@pytest.mark.parametrize("what", ["removed", "replaced"])
def test_two_loop_devices_over_a_file_without_a_name(device, what, options):
    name, image = device
    fill(f"nvme://{name}/x.duckdb")
    with rawduck.connect() as con:
        with another_loop(image) as other:
            image.unlink()
            if what == "replaced":
                image.write_bytes(bytes(1 << 20))
            for one_of_them, rival in ((name, other), (other, name)):
                with pytest.raises(duckdb.IOException, match=f"{rival}, which lies over the same file"):
                    con.execute(f"ATTACH 'nvme://{one_of_them}/x.duckdb' AS x {options}")
        con.execute(f"ATTACH 'nvme://{name}/x.duckdb' AS x {options}")
        assert one(con, "SELECT count(*) FROM x.t") == 1001


@pytest.mark.parametrize("named", [True, False])
def test_neighbours_in_one_file_are_two_devices(tmp_path, named):
    image = tmp_path / "two.img"
    with image.open("wb") as file:
        file.truncate(128 << 20)
    size = 64 << 20
    with (
        another_loop(image, "--sizelimit", str(size)) as first,
        another_loop(image, "--offset", str(size)) as second,
        rawduck.connect() as con,
    ):
        if not named:
            image.unlink()
        for device in (first, second):
            con.execute(f"CALL nvme_format('{device}')")
        with held(f"nvme://{first}/x.duckdb"):
            con.execute(f"ATTACH 'nvme://{second}/y.duckdb' AS y")
            con.execute("CREATE TABLE y.t AS SELECT 1 AS i")


def test_a_hard_link_to_the_file_below_a_loop_device(device):
    """The name that /sys gives is gone, and another one leads to the file."""
    name, image = device
    link = image.with_name("link.img")
    os.link(image, link)
    image.unlink()
    try:
        with rawduck.connect() as con:
            with held(f"nvme://{link}/x.duckdb"), pytest.raises(duckdb.IOException, match="on that file"):
                con.execute(f"ATTACH 'nvme://{name}/x.duckdb' AS x")
            with held(f"nvme://{name}/x.duckdb"), pytest.raises(duckdb.IOException, match=name):
                con.execute(f"ATTACH 'nvme://{link}/x.duckdb' AS x")
            con.execute(f"ATTACH 'nvme://{name}/x.duckdb' AS x (READ_ONLY)")
            assert f"{name}, and in use there" in run_python(WRITE_ONCE, str(link))
    finally:
        link.unlink()


@pytest.mark.parametrize("in_sight", [True, False])
def test_a_user_who_may_not_open_the_file_below(in_sight):
    code = "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n" + WRITE_ONCE
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755 if in_sight else 0o700)
        image = Path(folder) / "disk.img"
        with loop_device(image, 512, "64M") as name:
            run_cli("format", name)
            image.chmod(0o600)
            mode = stat.S_IMODE(os.stat(name).st_mode)
            os.chmod(name, 0o666)
            try:
                with held(f"nvme://{image}/x.duckdb"):
                    assert "somebody holds a lock on that file" in run_python(code, name)
                assert run_python(code, name) == "written"
            finally:
                os.chmod(name, mode)


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


def test_a_process_that_ends_leaves_the_device_free(device):
    for _ in range(3):
        with start_python(HOLD, f"nvme://{device[0]}/x.duckdb") as child:
            assert child.stdout.readline() == "ready\n", child.stderr.read()
            child.kill()
            child.wait()
        with rawduck.connect(f"nvme://{device[0]}/x.duckdb") as connection:
            assert one(connection, "SELECT count(*) FROM t") == 1000
