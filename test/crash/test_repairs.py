"""Damage and repairs between power cuts: a few hundred cuts of it are part of test_power_cuts.py too."""

from __future__ import annotations

import random

import duckdb
import pytest
import rawduck
from campaign import REFUSED, run_cuts
from damage import harmless_copies, names_lba
from disk import Disk, Geometry
from metadata import Metadata, Superblock, crc32c

#: So many that each kind comes up.
CUTS = 40
GEOMETRIES = [Geometry(lba_size=lba_size, atomic_write=lba_size) for lba_size in (512, 4096)]


@pytest.fixture
def con():
    with rawduck.connect(config={"threads": 1, "python_enable_replacements": False}) as connection:
        yield connection


@pytest.fixture(params=GEOMETRIES, ids=lambda geometry: f"LBA size {geometry.lba_size}")
def disk(con, request):
    """A volume with some commits in its log."""
    disk = Disk.make(con, "damaged", request.param)
    con.execute(f"ATTACH '{disk.path('x.duckdb')}' AS x; CREATE TABLE x.t (k INTEGER)")
    for number in range(10):
        con.execute(f"INSERT INTO x.t VALUES ({number})")
    return disk, Metadata(con, disk, request.param)


def test_every_kind_of_damage_and_repairs_come_up():
    result = run_cuts("repairs", CUTS, threaded_share=0)
    print(result.faults())
    assert not result.failures, "\n".join(result.failures)
    for kind in ("repairs", "superblocks damaged", *REFUSED):
        assert result.counts[kind] > 0, kind


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
    (epoch, records) = con.execute(
        "SELECT epoch, log_records FROM nvme_volumes() WHERE target = ?", [disk.target]
    ).fetchone()
    first, second = metadata.superblocks()
    assert first == second
    assert metadata.newest().epoch == epoch
    assert len(metadata.records()) == records > 5


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


def superblock(generation: int, epoch: int) -> Superblock:
    return Superblock(random.Random(epoch).randbytes(8), b"", generation, epoch, 0, 0)


def test_which_superblock_may_be_damaged():
    older, newer = superblock(3, 4), superblock(4, 5)
    assert harmless_copies([newer, newer], start_epoch=5) == [0, 1]
    assert harmless_copies([older, newer], start_epoch=5) == [0], "the life before was seen to end in 5"
    assert harmless_copies([newer, older], start_epoch=5) == [1]
    assert harmless_copies([older, newer], start_epoch=4) == [0, 1], "5 began in this life"
    assert harmless_copies([None, newer], start_epoch=4) == []


def test_helpers():
    assert crc32c(b"1234", b"56789") == 0xE3069283
    text = "x: read of 4096 bytes at byte offset 0 (LBA 8 to 15) failed"
    assert names_lba(text, 8)
    assert names_lba(text, 15)
    assert not names_lba(text, 16)
