"""What DuckDB reads in small pieces, one behind the other, is read ahead."""

from __future__ import annotations

import gzip
import os
from contextlib import suppress

import pytest
import rawduck
from support import kill_when_ready, make_target, one

READS = "SELECT requests FROM nvme_stats() WHERE target = ? AND operation = 'read'"
WRITER = """
    connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
    connection.execute("SET wal_autocheckpoint = '1GB'; CREATE TABLE x.t (i BIGINT, s VARCHAR)")
    for i in range(int(sys.argv[2])):
        connection.execute(f"INSERT INTO x.t SELECT range, repeat('text', 20) FROM range({i}000, {i + 1}000)")
    print('ready', flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("lba_size", [512, 4096])
def test_replaying_a_log_takes_few_reads(tmp_path, lba_size):
    with make_target(f"file-{lba_size}", tmp_path) as target:
        kill_when_ready(WRITER, target.path("x.duckdb"), "100")
        with rawduck.connect() as con:
            size = one(con, "SELECT size FROM nvme_files(?) WHERE name = 'x.duckdb.wal'", target.name)
            assert size > 5_000_000
            con.execute("CALL nvme_reset_stats()")
            con.execute(f"ATTACH '{target.path('x.duckdb')}' AS x (READ_ONLY)")
            assert con.execute("SELECT count(*), sum(i) FROM x.t").fetchone() == (100_000, 4_999_950_000)
            # The log is read twice. A read for each 4 KiB of it would be more than 2,400.
            assert one(con, READS, target.name) < 100


def rings() -> int:
    """Of this process."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{number}") == "anon_inode:[io_uring]"
    return found


def test_replaying_a_long_log_leaves_no_rings(tmp_path):
    """Threads read ahead, and each ends with its window."""
    with make_target("file-4096", tmp_path, "512M") as target:
        kill_when_ready(WRITER, target.path("x.duckdb"), "800")
        before = rings()
        with rawduck.connect(config={"threads": 1}) as con:
            assert (
                one(con, "SELECT size FROM nvme_files(?) WHERE name = 'x.duckdb.wal'", target.name) > 64 << 20
            )
            for _ in range(2):
                con.execute(f"ATTACH '{target.path('x.duckdb')}' AS x (READ_ONLY)")
                assert one(con, "SELECT count(*) FROM x.t") == 800_000
                con.execute("DETACH x")
            # The thread's own, and those of a few that DuckDB has beside it.
            assert rings() - before < 8


def test_a_compressed_file_too(file_target, tmp_path):
    text = "".join(f"{i},{i * 7919 % 10007}\n" for i in range(200_000))
    plain = tmp_path / "t.csv.gz"
    plain.write_bytes(gzip.compress(text.encode()))
    with rawduck.connect() as con:
        con.execute(f"CALL nvme_copy('{plain}', '{file_target.path('t.csv.gz')}')")
        con.execute("CALL nvme_reset_stats()")
        query = (
            f"SELECT count(*), sum(column0) FROM read_csv('{file_target.path('t.csv.gz')}', header = false)"
        )
        assert con.execute(query).fetchone() == (200_000, 19_999_900_000)
        # Beside what a mount reads.
        assert one(con, READS, file_target.name) < plain.stat().st_size / 32768 + 16
