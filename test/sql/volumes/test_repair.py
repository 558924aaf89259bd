"""`nvme_check(repair := true)` and `rawduck check --repair`: what may be repaired, and what never is."""

from __future__ import annotations

import struct

import duckdb
import pytest
import rawduck
from support import SUPERBLOCK_BYTES, Image, attach, crc32c, kill_when_ready, one, run_cli

ALLOCATION_UNIT_BYTES = 4096
LOG_START_OFFSET, MOUNTS_OFFSET, EPOCH_OFFSET, LOG_AREA_OFFSET = 80, 120, 136, 144
RECORD_BYTES = 4096


@pytest.fixture
def image(file_target, con):
    """A volume with a database and a log of several records, unmounted."""
    attach(con, file_target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT range AS v FROM range(1000)")
    for value in range(3):
        con.execute(f"INSERT INTO x.t VALUES ({value})")
    con.execute("DETACH x")
    return Image(file_target)


def check(con, target, repair=False):
    findings = con.execute(f"SELECT * FROM nvme_check(?, repair := {repair})", [target.name]).fetchall()
    return [dict(zip(("severity", "what", "detail", "repair"), row, strict=True)) for row in findings]


def planned(findings):
    return [finding["repair"] for finding in findings if finding["repair"]]


def log_start(image):
    """Where the first record behind the checkpoint is, by the superblock's own fields."""
    block = image.read(0, SUPERBLOCK_BYTES)
    (area,) = struct.unpack_from("<I", block, LOG_AREA_OFFSET)
    (start,) = struct.unpack_from("<Q", block, LOG_START_OFFSET + 8 * area)
    return start * ALLOCATION_UNIT_BYTES


def mounts_of(image, number):
    """By superblock 0 or 1."""
    offset = image.superblock_offsets[number]
    return struct.unpack_from("<Q", image.read(offset, SUPERBLOCK_BYTES), MOUNTS_OFFSET)[0]


def rows_of(target):
    with rawduck.connect() as con:
        attach(con, target, "x.duckdb", "(READ_ONLY)")
        return one(con, "SELECT count(*) FROM x.t")


@pytest.mark.parametrize("number", [0, 1])
def test_damaged_superblock_is_written_anew(file_target, image, con, number):
    mounts = mounts_of(image, 1 - number)
    image.damage_superblock(number)
    before = check(con, file_target)
    step = f"write superblock {number} anew from superblock {1 - number}, with a new checkpoint"
    assert planned(before) == [step]
    done = check(con, file_target, repair=True)
    assert done[0]["detail"] == f"done: {step}"
    assert {finding["severity"] for finding in done} == {"ok"}
    assert not planned(done)
    copies = [image.read(offset, SUPERBLOCK_BYTES) for offset in image.superblock_offsets]
    assert copies[0] == copies[1]
    assert mounts_of(image, number) == mounts + 2  # the damaged copy may have counted one
    assert rows_of(file_target) == 1003


@pytest.mark.parametrize("number", [0, 1])
def test_an_old_superblock_whose_pages_are_gone_is_not_repaired(file_target, image, con, number):
    """The damaged one was the newer by two mounts: what was committed since cannot be found."""
    old = image.read(0, SUPERBLOCK_BYTES)
    for value in range(2):  # the second one takes the log's area and the pages that the old superblock names
        attach(con, file_target, "x.duckdb")
        con.execute(f"INSERT INTO x.t VALUES ({value})")
        con.execute("DETACH x")
    image.write(image.superblock_offsets[1 - number], old)
    image.damage_superblock(number)
    before = image.read(0, 4 << 20)
    for repair in (False, True):
        findings = check(con, file_target, repair)
        errors = [finding for finding in findings if finding["severity"] == "error"]
        assert [finding["what"] for finding in errors] == ["metadata", "log"]
        assert "then format the volume anew" in errors[0]["detail"]
        assert not planned(findings)
    with pytest.raises(duckdb.Error, match="takes no writes"):
        attach(con, file_target, "x.duckdb")
    assert image.read(0, 4 << 20) == before


@pytest.mark.parametrize("number", [0, 1])
def test_the_log_of_an_old_superblock_leads_to_what_is_newest(file_target, image, con, number):
    """The damaged one was the newer by one mount."""
    old = image.read(0, SUPERBLOCK_BYTES)
    attach(con, file_target, "x.duckdb")
    con.execute("INSERT INTO x.t VALUES (0)")
    con.execute("DETACH x")
    image.write(image.superblock_offsets[1 - number], old)
    image.damage_superblock(number)
    assert not [finding for finding in check(con, file_target) if finding["severity"] == "error"]
    assert rows_of(file_target) == 1004


def test_unfinished_record_is_dropped(file_target, image, con):
    # The last record vouches for a checksum that its data does not have.
    block = image.read(0, SUPERBLOCK_BYTES)
    at = log_start(image)
    while image.read(at, 4) == b"RDLG":
        (payload,) = struct.unpack_from("<I", image.read(at, 64), 24)
        at += -(-(64 + payload) // RECORD_BYTES) * RECORD_BYTES
        last = at - RECORD_BYTES
    (sequence,) = struct.unpack_from("<Q", image.read(last, 64), 16)
    verify = struct.pack("<HHIQ", 9, 0, 32, 0) + struct.pack(
        "<QII", image.superblock_offsets[1] - ALLOCATION_UNIT_BYTES * 512, ALLOCATION_UNIT_BYTES, 1
    )
    header = bytearray(64)
    (epoch,) = struct.unpack_from("<Q", block, EPOCH_OFFSET)
    struct.pack_into("<4sIQQIIq", header, 0, b"RDLG", 0, epoch, sequence + 1, 32, 1, 1)
    struct.pack_into("<I", header, 4, crc32c(block[40:56] + bytes(header) + verify))
    image.write(at, bytes(header) + verify)
    before = check(con, file_target)
    assert planned(before) == ["drop the unfinished record at the end of the log"]
    assert {finding["severity"] for finding in before} == {"ok"}
    done = check(con, file_target, repair=True)
    assert done[0]["detail"] == "done: drop the unfinished record at the end of the log"
    assert not planned(done)
    assert rows_of(file_target) == 1003


def test_damage_inside_the_log_is_never_repaired(file_target, image, con):
    image.write(log_start(image) + 100, b"\xff\xff\xff\xff")
    before = image.read(0, 4 << 20)
    for repair in (False, True):
        findings = check(con, file_target, repair)
        errors = [finding for finding in findings if finding["severity"] == "error"]
        assert len(errors) == 1
        assert "not repaired" in errors[0]["detail"]
        assert not planned(findings)
    assert image.read(0, 4 << 20) == before
    with pytest.raises(duckdb.Error, match="takes no writes"):
        attach(con, file_target, "x.duckdb")


def test_a_database_with_a_log_is_copied_from_a_damaged_volume(file_target, image, con, tmp_path):
    code = """
    connection.execute(f"ATTACH '{sys.argv[1]}' AS x; INSERT INTO x.t VALUES (-1)")
    print("ready", flush=True)
    time.sleep(60)
    """
    kill_when_ready(code, file_target.path("x.duckdb"))
    attach(con, file_target, "y.duckdb")
    con.execute("CREATE TABLE y.t (i INTEGER); INSERT INTO y.t VALUES (1); DETACH y")
    image.write(log_start(image) + 100, b"\xff\xff\xff\xff")
    copy = tmp_path / "copy.duckdb"
    with pytest.raises(duckdb.Error, match="ATTACH it READ_ONLY and use COPY FROM DATABASE"):
        con.execute("CALL nvme_copy(?, ?)", [file_target.path("x.duckdb"), str(copy)])
    attach(con, file_target, "x.duckdb", "(READ_ONLY)")
    con.execute(f"ATTACH '{copy}' AS copy; COPY FROM DATABASE x TO copy")
    assert one(con, "SELECT count(*) FROM copy.t") == 1004


def test_sound_volume_stays_as_it_is(file_target, image, con):
    before = image.read(0, 4 << 20)
    assert not planned(check(con, file_target, repair=True))
    assert image.read(0, 4 << 20) == before


def test_needs_the_volume_for_itself(file_target, image, con):
    attach(con, file_target, "x.duckdb")
    check(con, file_target)
    with pytest.raises(duckdb.Error, match="DETACH"):
        check(con, file_target, repair=True)
    con.execute("DETACH x")
    attach(con, file_target, "x.duckdb", "(READ_ONLY)")
    check(con, file_target)
    with pytest.raises(duckdb.Error, match="DETACH"):
        check(con, file_target, repair=True)


def test_command_says_what_it_would_do_and_needs_leave(file_target, image):
    image.damage_superblock(1)
    refused = run_cli("check", file_target.name, "--repair")
    assert refused.returncode == 2
    assert "write superblock 1 anew from superblock 0" in refused.stderr
    assert "--yes" in refused.stderr
    done = run_cli("check", file_target.name, "--repair", "--yes")
    assert done.returncode == 0, done.stderr
    assert "done: write superblock 1 anew" in " ".join(done.stdout.split())
    again = run_cli("check", file_target.name, "--repair")
    assert again.returncode == 0
    assert "nothing to repair" in again.stdout
