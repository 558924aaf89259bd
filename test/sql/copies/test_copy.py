"""nvme_copy and nvme_remove: files between ordinary file systems and volumes, byte for byte."""

from __future__ import annotations

import os
from contextlib import ExitStack

import duckdb
import pytest
import rawduck
from support import attach, file_names, one

COPY = "SELECT bytes FROM nvme_copy(?, ?, overwrite := ?)"


def copy(con, source: str, destination: str, overwrite: bool = False) -> int:
    return con.execute(COPY, [str(source), str(destination), overwrite]).fetchone()[0]


@pytest.fixture
def stock_file(tmp_path):
    path = tmp_path / "stock.duckdb"
    with duckdb.connect(str(path)) as stock:
        stock.execute("CREATE TABLE t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(200000)")
    return path


def test_import_export_round_trip(target, con, stock_file, tmp_path):
    size = stock_file.stat().st_size
    assert copy(con, stock_file, target.path("x.duckdb")) == size
    attach(con, target, "x.duckdb", "(READ_ONLY)")
    assert con.execute("SELECT count(*), sum(v) FROM x.t").fetchone() == (200000, 19999900000)
    con.execute("DETACH x")
    back = tmp_path / "back.duckdb"
    assert copy(con, target.path("x.duckdb"), back) == size
    assert back.read_bytes() == stock_file.read_bytes()
    with duckdb.connect(str(back)) as stock:
        assert one(stock, "SELECT count(DISTINCT s) FROM t") == 200000


@pytest.mark.parametrize("scheme", ["", "direct://"])
def test_a_copy_takes_no_devices_place(con, stock_file, tmp_path, scheme):
    """It would be renamed over the node."""
    node = tmp_path / "node"
    os.mkfifo(node)
    with pytest.raises(duckdb.InvalidInputException, match="not a regular file"):
        copy(con, stock_file, f"{scheme}{node}", overwrite=True)
    assert node.is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node", "stock.duckdb"]


@pytest.mark.parametrize("scheme", ["", "direct://"])
@pytest.mark.parametrize("source", ["/dev/zero", "{folder}"])
def test_what_has_no_length_is_not_copied(con, tmp_path, scheme, source):
    """The copy would be empty, and be taken for all there is."""
    path = scheme + source.format(folder=tmp_path)
    with pytest.raises(duckdb.InvalidInputException, match="not a regular file"):
        copy(con, path, tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_export_of_a_database_written_on_the_volume(target, con, tmp_path):
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT range AS v, 'n' || range AS s FROM range(300000); CHECKPOINT x")
    con.execute("DELETE FROM x.t WHERE v % 3 = 0; DETACH x")
    out = tmp_path / "out.duckdb"
    copy(con, target.path("x.duckdb"), out)
    with duckdb.connect(str(out)) as stock:
        assert stock.execute("SELECT count(*), min(v) FROM t").fetchone() == (200000, 1)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 4095, 4097, 1_000_003, 33 * 1024**2 + 7])
def test_odd_sizes(target, con, tmp_path, size):
    source, back = tmp_path / "in.bin", tmp_path / "out.bin"
    source.write_bytes(os.urandom(size))
    assert copy(con, source, target.path("f.bin")) == size
    assert one(con, "SELECT size FROM nvme_files(?)", target.name) == size
    assert copy(con, target.path("f.bin"), back) == size
    assert back.read_bytes() == source.read_bytes()


def test_between_volumes(target, new_target, con, stock_file, tmp_path):
    other = new_target("file-512")
    copy(con, stock_file, target.path("x.duckdb"))
    copy(con, target.path("x.duckdb"), other.path("sub/y.duckdb"))
    copy(con, other.path("sub/y.duckdb"), tmp_path / "z.duckdb")
    assert (tmp_path / "z.duckdb").read_bytes() == stock_file.read_bytes()


def test_existing_destination(target, con, stock_file, tmp_path):
    small = tmp_path / "small"
    small.write_text("small")
    copy(con, stock_file, target.path("x.duckdb"))
    with pytest.raises(duckdb.Error, match="overwrite"):
        copy(con, small, target.path("x.duckdb"))
    assert one(con, "SELECT size FROM nvme_files(?)", target.name) == stock_file.stat().st_size
    assert copy(con, small, target.path("x.duckdb"), overwrite=True) == 5
    assert one(con, "SELECT size FROM nvme_files(?)", target.name) == 5
    with pytest.raises(duckdb.Error, match="overwrite"):
        copy(con, target.path("x.duckdb"), small)
    assert small.read_text() == "small"


@pytest.mark.parametrize("scheme", ["", "direct://"])
def test_a_copy_does_not_replace_a_volume(file_target, con, tmp_path, scheme):
    """Who names it means a file on it."""
    source = tmp_path / "source"
    source.write_text("new")
    copy(con, source, file_target.path("kept"))
    with pytest.raises(duckdb.Error, match=f"rawduck volume.*nvme://{file_target.name}/<name>"):
        copy(con, source, f"{scheme}{file_target.name}", overwrite=True)
    assert one(con, "SELECT name FROM nvme_files(?)", file_target.name) == "kept"


@pytest.mark.parametrize("scheme", ["", "direct://"])
def test_what_is_overwritten_keeps_its_permissions(con, tmp_path, scheme):
    source, private = tmp_path / "source", tmp_path / "private"
    source.write_text("new")
    private.write_text("old")
    private.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(private, 1234, 5678)
    before = private.stat()
    copy(con, source, f"{scheme}{private}", overwrite=True)
    after = private.stat()
    assert private.read_text() == "new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_attached_destination_is_left_alone(target, con, stock_file):
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT 42 AS v")
    with pytest.raises(duckdb.Error):
        copy(con, stock_file, target.path("x.duckdb"), overwrite=True)
    assert one(con, "SELECT v FROM x.t") == 42


@pytest.mark.parametrize("overwrite", [False, True])
def test_missing_source(target, con, tmp_path, overwrite):
    with pytest.raises(duckdb.Error, match="missing"):
        copy(con, tmp_path / "missing", target.path("x.duckdb"), overwrite)
    with pytest.raises(duckdb.Error, match="missing"):
        copy(con, target.path("missing"), tmp_path / "x", overwrite)
    assert file_names(con, target) == []
    assert not (tmp_path / "x").exists()


def test_nothing_stays_locked(new_target, stock_file, tmp_path):
    """The result of a statement may be kept, and everything that it used with it."""
    volume = new_target("file-4096").path("x.duckdb")
    direct = f"direct://{tmp_path}/y.duckdb"
    plain = str(tmp_path / "z.duckdb")
    with ExitStack() as stack:
        for source, destination in (
            (stock_file, volume),
            (volume, direct),
            (direct, plain),
            (plain, stock_file),
        ):
            kept = stack.enter_context(rawduck.connect())
            kept.execute(COPY, [str(source), str(destination), True]).fetchone()
        for path in (volume, direct, plain, str(stock_file)):
            with rawduck.connect() as con:
                con.execute(f"ATTACH '{path}' AS x; INSERT INTO x.t VALUES (1, 'x'); DETACH x")


def test_survives_the_process(durable_target, stock_file, tmp_path):
    with rawduck.connect() as con:
        copy(con, stock_file, durable_target.path("x.duckdb"))
    with rawduck.connect() as con:
        copy(con, durable_target.path("x.duckdb"), tmp_path / "back.duckdb")
    assert (tmp_path / "back.duckdb").read_bytes() == stock_file.read_bytes()


def test_remove(target, con, stock_file):
    used = one(con, "SELECT used FROM nvme_info(?)", target.name)
    copy(con, stock_file, target.path("x.duckdb"))
    con.execute("SELECT * FROM nvme_remove(?)", [target.path("x.duckdb")]).fetchall()
    assert file_names(con, target) == []
    assert one(con, "SELECT used FROM nvme_info(?)", target.name) == used
    with pytest.raises(duckdb.Error, match=r"x\.duckdb"):
        con.execute("SELECT * FROM nvme_remove(?)", [target.path("x.duckdb")]).fetchall()


LONGEST_NAME = 255


@pytest.mark.parametrize("name", ["n" * LONGEST_NAME, "é" * (LONGEST_NAME // 2), "d" * 250 + "/abcd"])
def test_the_longest_names(target, con, stock_file, tmp_path, name):
    """What the copy is called until it is complete has room, too."""
    copy(con, stock_file, target.path(name))
    assert file_names(con, target) == [name]
    back = tmp_path / name.replace("/", "-")
    copy(con, target.path(name), back)
    assert back.read_bytes() == stock_file.read_bytes()


def test_a_name_that_is_too_long(file_target, con, stock_file):
    with pytest.raises(duckdb.Error, match=r"n\" cannot be the name .* it has 256 bytes"):
        copy(con, stock_file, file_target.path("n" * (LONGEST_NAME + 1)))


@pytest.mark.parametrize("swap", [False, True])
def test_a_volume_without_a_file(file_target, con, stock_file, swap):
    """The message is about the path that was given, not about the log that is looked for beside it."""
    ends = [str(stock_file), f"nvme://{file_target.name}"]
    with pytest.raises(duckdb.Error, match="names a volume but no file") as raised:
        copy(con, *(reversed(ends) if swap else ends))
    assert ".wal" not in str(raised.value)


def test_no_room_is_said_before_anything_is_copied(new_target, con, tmp_path):
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.truncate(1200 * 1024**2)
    small = new_target("file-4096", size="32M")
    con.execute("CALL nvme_reset_stats()").fetchall()
    with pytest.raises(duckdb.IOException, match=r"needs 1200 MiB, and the volume has \d+ KiB free"):
        copy(con, source, small.path("x.duckdb"))
    assert file_names(con, small) == []
    written = "SELECT coalesce(sum(bytes), 0) FROM nvme_stats() WHERE target = ? AND operation = 'write'"
    assert one(con, written, small.name) < 1024**2


def test_no_room_in_a_file_system(target, con, tmp_path, monkeypatch):
    """Of a source that is mostly a hole there is more than any disk has."""
    source = tmp_path / "huge"
    with source.open("wb") as file:
        file.truncate(15 * 1024**4)
    with pytest.raises(duckdb.IOException, match=r"needs 15 TiB, and the file system of .* free"):
        copy(con, source, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name in ("huge", "copy")) == ["huge"]
    assert not list(tmp_path.glob("*.nvme_copy-*"))


def test_what_a_killed_copy_left_is_removed_by_the_next(target, con, stock_file, tmp_path):
    digits = ".nvme_copy-0123abcd"
    for name in ("y.duckdb", "x.duckdb"):
        copy(con, stock_file, target.path(f"{name}{digits}x"))
        con.execute(f"SELECT * FROM nvme_copy('{stock_file}', '{target.path(name + digits)}')").fetchall()
    left = [tmp_path / f"back{digits}", tmp_path / f"back{digits}0", tmp_path / f"other{digits}"]
    for path in left:
        path.write_text("left")
        os.utime(path, (1, 1))
    copy(con, stock_file, target.path("new.duckdb"))
    assert file_names(con, target) == ["new.duckdb", f"x.duckdb{digits}x", f"y.duckdb{digits}x"]
    copy(con, stock_file, tmp_path / "back")
    assert [path.exists() for path in left] == [False, True, True]


def test_what_a_running_copy_has_is_left_alone(target, con, stock_file, tmp_path):
    name = "x.duckdb.nvme_copy-0123abcd"
    con.execute(f"ATTACH '{target.path(name)}' AS x")  # locked, as by a copy
    held = tmp_path / "back.nvme_copy-0123abcd"
    con.execute(f"ATTACH '{held}' AS held; CREATE TABLE held.t (v INTEGER); CHECKPOINT held")
    os.utime(held, (1, 1))
    with rawduck.connect() as other:
        copy(other, stock_file, target.path("new.duckdb"))
        copy(other, stock_file, tmp_path / "back")
    assert held.exists()
    assert name in file_names(con, target)
