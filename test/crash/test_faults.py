"""What goes wrong apart from the power is noticed, said, and contained."""

from __future__ import annotations

import time
from contextlib import contextmanager

import duckdb
import pytest
import rawduck
from disk import Disk, Geometry

LBA = 512
GEOMETRY = Geometry(lba_size=LBA, atomic_write=LBA)


@pytest.fixture
def con():
    with rawduck.connect(config={"threads": 1, "python_enable_replacements": False}) as connection:
        yield connection


@pytest.fixture
def disk(con):
    """A volume with a database x in which table t has a thousand rows, checkpointed; not attached."""
    disk = Disk.make(con, "faulty", GEOMETRY)
    attach(con, disk)
    con.execute("CREATE TABLE x.t AS SELECT r AS k, md5(r::VARCHAR) AS v FROM range(1000) g(r)")
    con.execute("DETACH x")
    return disk


def attach(con, disk: Disk, options: str = "") -> None:
    con.execute(f"ATTACH '{disk.path('x.duckdb')}' AS x {options}")


def attach_and_count(con, disk: Disk) -> int:
    attach(con, disk)
    return rows(con)


def rows(con) -> int:
    return con.execute("SELECT count(k) FROM x.t").fetchone()[0]


@contextmanager
def another_instance():
    """Of DuckDB, in the same process and on the same volumes."""
    with rawduck.connect(config={"python_enable_replacements": False}) as connection:
        yield connection


def test_a_failed_flush_stops_all_writing_and_no_reading(con):
    disk = Disk.make(con, "faulty", Geometry(fua=False))
    con.execute(f"ATTACH '{disk.path('y.duckdb')}' AS y; CREATE TABLE y.t AS SELECT 2 AS k")
    with another_instance() as other:
        attach(other, disk)
        other.execute("CREATE TABLE x.t AS SELECT 1 AS k")
        disk.inject(con, "flush_error", disk.events(con))
        with pytest.raises(duckdb.Error, match="flush failed"):
            other.execute("INSERT INTO x.t VALUES (2)")
        assert con.execute("SELECT k FROM y.t").fetchall() == [(2,)]
        poisoned = "SELECT poisoned FROM nvme_volumes() WHERE target = ?"
        assert "flush failed" in con.execute(poisoned, [disk.target]).fetchone()[0]
        with pytest.raises(duckdb.Error, match=r"takes no more writes.*flush failed"):
            con.execute("INSERT INTO y.t VALUES (3)")


def test_after_a_failed_flush_a_power_cut_shows_what_was_acknowledged(con):
    disk = Disk.make(con, "faulty", Geometry(fua=False))
    with another_instance() as other:
        attach(other, disk)
        other.execute("CREATE TABLE x.t AS SELECT r AS k FROM range(1000) g(r)")
        disk.inject(con, "flush_error", disk.events(con))
        with pytest.raises(duckdb.Error):
            other.execute("INSERT INTO x.t VALUES (1000)")
        for seed in range(20):
            survivor, _ = disk.cut(con, disk.events(con), seed, "survivor")
            attach(con, survivor)
            assert rows(con) in (1000, 1001)
            con.execute("DETACH x")


def extents(con, disk: Disk) -> list[tuple[int, int, int]]:
    """Where x.duckdb lies: byte offset in the file, first LBA, number of LBAs."""
    query = "SELECT unnest(extent_list, recursive := true) FROM nvme_files(?) WHERE name = 'x.duckdb'"
    return con.execute(query, [disk.target]).fetchall()


def test_latent_corruption_is_detected_and_can_be_located(con, disk):
    """DuckDB names the block by its place in the file; the list of extents leads from there to the LBA."""
    damaged = 12288 + 100 * LBA
    file_offset, lba, _ = next(e for e in extents(con, disk) if e[0] <= damaged < e[0] + e[2] * LBA)
    disk.inject(con, "corruption", lba + (damaged - file_offset) // LBA)
    with pytest.raises(duckdb.Error, match=r"checksum.*block at location") as error:
        attach_and_count(con, disk)
    location = int(str(error.value).rsplit("location ", 1)[1].split()[0].rstrip("."))
    assert location <= damaged < location + 262144


def test_an_unreadable_lba_is_named(con, disk):
    lba = extents(con, disk)[0][1]
    disk.inject(con, "read_error", lba)
    with pytest.raises(duckdb.Error, match=rf"simulated:faulty: read of .*LBA {lba} to"):
        attach(con, disk)


def errors(con, disk: Disk) -> list[tuple[str, str]]:
    query = "SELECT what, detail FROM nvme_check(?) WHERE severity = 'error'"
    return con.execute(query, [disk.target]).fetchall()


def test_data_of_the_last_commit_that_cannot_be_read(con, disk):
    """Nobody can tell whether it was acknowledged: what was there before is read, and nothing is written."""
    with another_instance() as other:
        attach(other, disk)
        for number in range(3):
            other.execute(f"INSERT INTO x.t SELECT {number}, repeat('row', 5000)")
        survivor, _ = disk.cut(con, disk.events(con), 0, "survivor")
    query = (
        "SELECT size, unnest(extent_list, recursive := true) FROM nvme_files(?) WHERE name = 'x.duckdb.wal'"
    )
    size, _, first, _ = con.execute(query, [survivor.target]).fetchone()
    lba = first + size // LBA - 1
    survivor.inject(con, "read_error", lba)
    ((what, detail),) = errors(con, survivor)
    assert what == "log"
    assert "file x.duckdb.wal" in detail
    assert f"LBA {lba} to" in detail
    with pytest.raises(duckdb.Error, match=rf"takes no writes.*LBA {lba} to"):
        attach(con, survivor)
    attach(con, survivor, "(READ_ONLY)")
    assert rows(con) == 1002
    con.execute("DETACH x")
    before = survivor.events(con)
    con.execute("FROM nvme_check(?, repair := true)", [survivor.target])
    assert survivor.events(con) == before


@pytest.mark.parametrize("number", [0, 1])
def test_a_superblock_that_cannot_be_read_is_written_anew(con, disk, number):
    lba = 0 if number == 0 else disk.capacity(con) // GEOMETRY.lba_size - 1
    disk.inject(con, "read_error", lba)
    warnings = "SELECT what FROM nvme_check(?) WHERE severity = 'warning'"
    assert con.execute(warnings, [disk.target]).fetchall() == [(f"superblock {number}",)]
    attach(con, disk)
    con.execute("INSERT INTO x.t VALUES (1, 'more')")
    con.execute("DETACH x")
    assert con.execute(warnings, [disk.target]).fetchall() == []
    assert attach_and_count(con, disk) == 1001


def insert_until_it_fails(connection) -> int:
    """Returns how many commits of one row each were acknowledged."""
    for number in range(1000):
        try:
            connection.execute(f"INSERT INTO x.t VALUES ({number})")
        except duckdb.Error:
            return number
    raise AssertionError("nothing failed")


@pytest.mark.parametrize("later", [1, 2, 7, 40])
def test_the_power_goes_while_duckdb_works(con, later):
    disk = Disk.make(con, "faulty", Geometry(lba_size=LBA, atomic_write=LBA))
    with another_instance() as other:
        attach(other, disk)
        other.execute("CREATE TABLE x.t (k INTEGER)")
        disk.inject(con, "power_cut", disk.events(con) + later)
        acknowledged = insert_until_it_fails(other)
        for seed in range(10):
            survivor, _ = disk.cut(con, disk.events(con), seed, "survivor")
            attach(con, survivor)
            assert rows(con) in (acknowledged, acknowledged + 1)
            con.execute("DETACH x")


@pytest.mark.parametrize("later", range(1, 7))
def test_a_misdirected_write_is_noticed(con, later):
    """A write of a commit went elsewhere, and other commits followed it. (Not the very first of a WAL: DuckDB
    takes zeros at its start for an empty one.)"""
    disk = Disk.make(con, "faulty", Geometry(lba_size=LBA, atomic_write=LBA, seed=later))
    attach(con, disk)
    con.execute("CREATE TABLE x.t (k VARCHAR)")
    pending = "SELECT checkpoint_pending FROM nvme_volumes() WHERE target = ?"
    while con.execute(pending, [disk.target]).fetchone()[0]:
        time.sleep(0.01)  # what it writes is not what is to be misdirected
    disk.inject(con, "misdirected_write", disk.events(con) + later)
    for number in range(20):
        con.execute(f"INSERT INTO x.t SELECT repeat('{number} ', 400)")
    survivor, _ = disk.cut(con, disk.events(con), 0, "survivor")
    damage = con.execute(
        "SELECT what FROM nvme_check(?) WHERE severity = 'error'", [survivor.target]
    ).fetchall()
    con.execute("DETACH x")
    if not damage:
        with pytest.raises(duckdb.Error, match=r"(?i)checksum|corrupt|damaged"):
            attach(con, survivor)
