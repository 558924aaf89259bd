"""Formatting refuses a target that holds anything, and says what it found."""

from __future__ import annotations

import os
import shutil
import subprocess

import duckdb
import pytest
import rawduck
from support import format_target, loop_device, one

SBIN = "/usr/sbin:/sbin:/usr/bin:/bin"
MIB = 1024**2


def tool(name: str) -> str:
    path = shutil.which(name, path=SBIN)
    if not path:
        pytest.skip(f"{name} is not installed")
    return path


def run_tool(name: str, *arguments: str) -> None:
    subprocess.run([tool(name), *arguments], check=True, capture_output=True)


def format_error(con, target: str, force: bool = False) -> str:
    with pytest.raises(duckdb.Error) as caught:
        con.execute(f"SELECT * FROM nvme_format(?, force := {force})", [target]).fetchall()
    message = str(caught.value)
    assert target in message
    return message


def formatted(con, target: str) -> bool:
    con.execute("SELECT * FROM nvme_format(?, force := true)", [target]).fetchall()
    return one(con, "SELECT files FROM nvme_info(?)", target) == 0


@pytest.fixture
def blank(tmp_path):
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
    return str(path)


def test_new_file(con, tmp_path):
    target = str(tmp_path / "new.rawduck")
    row = con.execute("SELECT * FROM nvme_format(?, size := '64M', label := 'mine')", [target]).fetchone()
    assert row[0] == target
    assert row[2:] == (64 * MIB, 4096)
    label = one(con, "SELECT label FROM nvme_info(?)", target)
    uuid = one(con, "SELECT uuid::VARCHAR FROM nvme_info(?)", target)
    assert (label, uuid) == ("mine", str(row[1]))


def test_new_file_without_a_size(con, tmp_path):
    assert "size" in format_error(con, str(tmp_path / "new.rawduck"))
    assert not (tmp_path / "new.rawduck").exists()


def test_blank_file_needs_no_force(con, blank):
    con.execute("SELECT * FROM nvme_format(?)", [blank]).fetchall()
    assert one(con, "SELECT capacity FROM nvme_info(?)", blank) == 64 * MIB


@pytest.mark.parametrize(
    ("size", "said"), [("8M", "16 MiB"), ("0", "size"), ("-1G", "size"), ("many", "many"), ("100E", "size")]
)
def test_size_that_cannot_work(con, tmp_path, size, said):
    target = tmp_path / "new.rawduck"
    with pytest.raises(duckdb.Error, match=said):
        con.execute("SELECT * FROM nvme_format(?, size := ?)", [str(target), size]).fetchall()
    assert not target.exists()


@pytest.mark.parametrize("lba_size", [1, 513, 1024, 8192])
def test_lba_size_that_cannot_work(con, tmp_path, lba_size):
    target = tmp_path / "new.rawduck"
    with pytest.raises(duckdb.Error, match="512 or 4096"):
        con.execute(
            "SELECT * FROM nvme_format(?, size := '64M', lba_size := ?)", [str(target), lba_size]
        ).fetchall()
    assert not target.exists()


def test_label_that_is_too_long(con, blank):
    with pytest.raises(duckdb.Error, match="63"):
        con.execute("SELECT * FROM nvme_format(?, label := ?)", [blank, "x" * 64]).fetchall()


def test_missing_device(con):
    assert "/dev/no-such-disk" in format_error(con, "/dev/no-such-disk")


def test_directory(con, tmp_path):
    assert "directory" in format_error(con, str(tmp_path))


def test_ext4(con, blank):
    run_tool("mkfs.ext4", "-q", "-F", blank)
    message = format_error(con, blank)
    assert "ext4" in message
    assert "force" in message
    run_tool("e2fsck", "-f", "-n", blank)
    assert formatted(con, blank)


def test_swap(con, blank):
    run_tool("mkswap", blank)
    assert "swap" in format_error(con, blank)
    assert formatted(con, blank)


def test_rawduck_volume(con, blank):
    con.execute("SELECT * FROM nvme_format(?, label := 'precious')", [blank]).fetchall()
    message = format_error(con, blank)
    assert "rawduck" in message
    assert one(con, "SELECT label FROM nvme_info(?)", blank) == "precious"
    assert formatted(con, blank)


def test_duckdb_file(con, tmp_path):
    path = str(tmp_path / "stock.duckdb")
    with duckdb.connect(path) as stock:
        stock.execute("CREATE TABLE t AS SELECT range AS v FROM range(10)")
    with pytest.raises(duckdb.Error, match="DuckDB"):
        con.execute("SELECT * FROM nvme_format(?, size := '64M')", [path]).fetchall()
    with duckdb.connect(path) as stock:
        assert one(stock, "SELECT sum(v) FROM t") == 45


def test_file_with_unknown_content(con, tmp_path):
    path = tmp_path / "letters.txt"
    path.write_bytes(b"dear diary " * 4 * MIB)
    before = path.stat().st_size
    with pytest.raises(duckdb.Error, match="force"):
        con.execute("SELECT * FROM nvme_format(?)", [str(path)]).fetchall()
    assert path.stat().st_size == before
    assert path.read_bytes()[:11] == b"dear diary "


def test_volume_in_use_by_this_process(con, file_target):
    con.execute(f"ATTACH '{file_target.path('x.duckdb')}' AS x")
    con.execute("CREATE TABLE x.t AS SELECT 42 AS v")
    message = format_error(con, file_target.name, force=True)
    assert "use" in message
    assert one(con, "SELECT v FROM x.t") == 42


def test_mounted_file_system(con, tmp_path):
    with loop_device(tmp_path / "disk.img", 512, "64M") as device:
        run_tool("mkfs.ext4", "-q", device)
        mount_point = tmp_path / "mount"
        mount_point.mkdir()
        mounted = subprocess.run(
            [tool("mount"), device, mount_point], capture_output=True, text=True, check=False
        )
        if mounted.returncode != 0:
            pytest.skip(f"cannot mount: {mounted.stderr.strip()}")
        try:
            (mount_point / "kept").write_text("kept")
            for force in (False, True):
                message = format_error(con, device, force)
                assert str(mount_point) in message
            assert (mount_point / "kept").read_text() == "kept"
        finally:
            run_tool("umount", str(mount_point))
        assert "ext4" in format_error(con, device)
        assert formatted(con, device)


def test_file_behind_a_loop_device(con, tmp_path):
    image = tmp_path / "disk.img"
    with loop_device(image, 512, "64M") as device:
        message = format_error(con, str(image), force=True)
        assert device in message


def test_partitioned_device(con, tmp_path):
    sfdisk = tool("sfdisk")
    with loop_device(tmp_path / "disk.img", 512, "64M") as device:
        subprocess.run([sfdisk, "--quiet", device], input="label: gpt\n,16M\n,\n", text=True, check=True)
        assert "gpt" in format_error(con, device).lower()


def test_devices_lists_what_is_on_a_loop_device(con, tmp_path):
    query = "SELECT capacity, lba_size, in_use, error FROM nvme_devices() WHERE path = ?"
    with loop_device(tmp_path / "disk.img", 4096, "64M") as device:
        capacity, lba_size, in_use, error = con.execute(query, [device]).fetchone()
        assert (capacity, lba_size, in_use or [], error or "") == (64 * MIB, 4096, [], "")
        run_tool("mkfs.ext4", "-q", device)
        in_use = con.execute(query, [device]).fetchone()[2]
        assert any("ext4" in use for use in in_use)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for loop devices")
def test_lba_size_below_the_device(con, tmp_path):
    with loop_device(tmp_path / "disk.img", 4096, "64M") as device, pytest.raises(duckdb.Error, match="4096"):
        con.execute("SELECT * FROM nvme_format(?, lba_size := 512)", [device]).fetchall()


def test_memory(con):
    target = "memory:format-test"
    con.execute("SELECT * FROM nvme_format(?, size := '32M')", [target]).fetchall()
    with rawduck.connect(f"nvme://{target}/x.duckdb") as other:
        other.execute("CREATE TABLE t AS SELECT 1 AS v")
    assert one(con, "SELECT files FROM nvme_info(?)", target) == 1
    assert "force" in format_error(con, target)
    assert formatted(con, target)


def test_default_lba_size_is_the_devices(con, tmp_path):
    for sector_size in (512, 4096):
        with loop_device(tmp_path / f"{sector_size}.img", sector_size, "64M") as device:
            con.execute("SELECT * FROM nvme_format(?)", [device]).fetchall()
            assert one(con, "SELECT lba_size FROM nvme_info(?)", device) == sector_size


def test_fixture_formats_what_it_says(target, con):
    assert one(con, "SELECT lba_size FROM nvme_info(?)", target.name) == target.lba_size
    with pytest.raises(duckdb.Error, match="force"):
        format_target(target)
