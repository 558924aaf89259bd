"""Damage and repairs between power cuts: a few hundred cuts of it are part of test_power_cuts.py too."""

from __future__ import annotations

import random
import time

import duckdb
import pytest
import rawduck
from campaign import REFUSED, run_cuts
from damage import harmless_copies, is_named, names_lba
from disk import Disk, Geometry
from metadata import Metadata, Superblock, crc32c

#: So many that each kind comes up.
CUTS = 40
SEEDS_MOST = 6
GEOMETRIES = [Geometry(lba_size=lba_size, atomic_write=lba_size) for lba_size in (512, 4096)]


@pytest.fixture
def con():
    with rawduck.connect(config={"threads": 1, "python_enable_replacements": False}) as connection:
        yield connection


@pytest.fixture(params=GEOMETRIES, ids=lambda geometry: f"LBA size {geometry.lba_size}")
def disk(con, request):
    """A volume with files in its checkpoint and some commits in its log."""
    disk = Disk.make(con, "damaged", request.param)
    metadata = Metadata(con, disk, request.param)
    con.execute(f"ATTACH '{disk.path('x.duckdb')}' AS x; CREATE TABLE x.t (k INTEGER); DETACH x")
    con.execute(f"ATTACH '{disk.path('x.duckdb')}' AS x")
    for number in range(10):
        con.execute(f"INSERT INTO x.t VALUES ({number})")
    # Until the checkpoint of the mount is written.
    wait_until(lambda: metadata.newest().epoch == volume(con, disk)[0])
    wait_until(lambda: len(set(metadata.superblocks())) == 1)
    return disk, metadata


def volume(con, disk) -> tuple[int, int]:
    """Epoch and records of the log, by the volume itself."""
    query = "SELECT epoch, log_records FROM nvme_volumes() WHERE target = ?"
    return con.execute(query, [disk.target]).fetchone()


def wait_until(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_every_kind_of_damage_and_repairs_come_up():
    """What a seed draws changes with the workload, so there are more of them until everything has come."""
    missing = {"repairs", "superblocks damaged", *REFUSED}
    for seed in range(SEEDS_MOST):
        result = run_cuts(f"repairs {seed}", CUTS, threaded_share=0)
        print(result.faults())
        assert not result.failures, "\n".join(result.failures)
        missing -= {kind for kind in missing if result.counts[kind] > 0}
        if not missing:
            return
    raise AssertionError(f"never came up: {missing}")


@pytest.mark.long
def test_the_seed_decides():
    """Two runs of some are the same. On a busy machine DuckDB now and then makes one write more or less."""
    counts = []
    for _ in range(5):
        result = run_cuts("again", 10, threaded_share=0)
        assert not result.failures
        if result.counts in counts:
            return
        counts.append(result.counts)
    raise AssertionError(f"no two runs are the same: {counts}")


def test_the_metadata_is_read_as_the_volume_reads_it(con, disk):
    disk, metadata = disk
    epoch, records = volume(con, disk)
    assert metadata.newest().mounts == epoch >> 32
    assert len(metadata.parts()[-1]) == records > 5
    assert metadata.pages()


def test_every_page_of_the_map_is_one_that_the_check_reads(con, disk):
    disk, metadata = disk
    con.execute("DETACH x")
    query = "SELECT what FROM nvme_check(?) WHERE severity = 'error'"
    for number, page in enumerate(metadata.pages()):
        survivor, _ = disk.cut(con, disk.events(con), number, "survivor")
        assert con.execute(query, [survivor.target]).fetchall() == []
        survivor.inject(con, "corruption", page[number % len(page)])
        assert ("metadata",) in con.execute(query, [survivor.target]).fetchall()


def test_damage_to_the_metadata_is_seen(con, disk):
    disk, metadata = disk
    records = metadata.records()
    while len(metadata.records()) > 3:  # the bit may lie behind the record's last byte
        disk.inject(con, "corruption", records[3].lba)
    assert metadata.records() == records[:3]
    disk.inject(con, "read_error", metadata.copy_lbas(0).start)
    disk.inject(con, "corruption", metadata.copy_lbas(1)[-1])
    assert metadata.superblocks() == [None, None]
    with pytest.raises(duckdb.IOException, match="errno 5"):
        disk.read(con, metadata.copy_lbas(0).start, 1)
    with pytest.raises(duckdb.Error, match="there are only"):
        disk.read(con, metadata.copy_lbas(1)[-1], 2)


def superblock(sequence: int) -> Superblock:
    return Superblock(random.Random(sequence).randbytes(8), b"", sequence, 1, 1, 1, 0, (0, 0), 0, 0, ())


def test_which_superblock_may_be_damaged():
    older, newer = superblock(4), superblock(5)
    assert harmless_copies([newer, newer], start_sequence=5) == [0, 1]
    assert harmless_copies([older, newer], start_sequence=5) == [0], "the life before was seen to end with 5"
    assert harmless_copies([newer, older], start_sequence=5) == [1]
    assert harmless_copies([older, newer], start_sequence=4) == [0, 1], "5 was written in this life"
    assert harmless_copies([None, newer], start_sequence=4) == []


def test_helpers():
    assert crc32c(b"1234", b"56789") == 0xE3069283
    text = "x: read of 4096 bytes at byte offset 0 (LBA 8 to 15) failed"
    assert names_lba(text, 8)
    assert names_lba(text, 15)
    assert not names_lba(text, 16)
    assert is_named("a.duckdb", ["b", "a.duckdb.wal"])
    assert not is_named("a.duckdb", ["a.duckdb2"])
