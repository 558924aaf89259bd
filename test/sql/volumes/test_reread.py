"""Blocks that DuckDB drops for want of memory and reads again."""

from __future__ import annotations

import pytest
import rawduck
from support import make_target, one

COLUMNS = ", ".join(f"hash(range + {i}) % 1000000007 AS c{i}" for i in range(12))
MAKE = f"CREATE TABLE {{}}.t AS SELECT {COLUMNS} FROM range(2_000_000)"
#: Reads far more ahead than fits into the memory of these tests.
WIDE = "SELECT " + ", ".join(f"max(c{i}), sum(c{i})" for i in range(12)) + " FROM x.t"
COUNTERS = "SELECT rereads, rereads_from_memory, reread_buffer_bytes FROM nvme_volumes()"


@pytest.fixture(scope="module")
def expected():
    with rawduck.connect() as con:
        con.execute("ATTACH ':memory:' AS x")
        con.execute(MAKE.format("x"))
        return con.execute(WIDE).fetchone()


def attached_with_little_memory(path: str, buffer: str) -> rawduck.duckdb.DuckDBPyConnection:
    config = {"memory_limit": "60MB", "threads": 2, "block_allocator_memory": "0B"}
    con = rawduck.connect(config=config)
    con.execute(f"SET nvme_reread_buffer = '{buffer}'")
    con.execute(f"ATTACH '{path}' AS x (READ_ONLY)")
    return con


def make(path: str) -> None:
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{path}' AS x")
        con.execute(MAKE.format("x"))


@pytest.mark.parametrize(("buffer", "limit"), [("0 B", 0), ("2 MiB", 2 * 2**20), ("16 MiB", 16 * 2**20)])
def test_blocks_that_are_read_again_come_from_memory_within_the_limit(tmp_path, expected, buffer, limit):
    with make_target("file-4096", tmp_path, size="512M") as target:
        make(target.path("x.duckdb"))
        with attached_with_little_memory(target.path("x.duckdb"), buffer) as con:
            for _ in range(3):
                assert con.execute(WIDE).fetchone() == expected
            rereads, hits, held = con.execute(COUNTERS).fetchone()
            assert held <= limit
            assert hits <= rereads
            if limit == 0:
                assert (rereads, held) == (0, 0)
            if limit == 16 * 2**20:
                assert hits > 0
                read = "SELECT bytes FROM nvme_stats() WHERE target = ? AND operation = 'read'"
                assert one(con, read, target.name) > 0


def bytes_of_a_scan(path: str, buffer: str, expected) -> int:
    with attached_with_little_memory(f"direct://{path}", buffer) as con:
        con.execute("SET threads = 1; CALL nvme_reset_stats()")
        assert con.execute(WIDE).fetchone() == expected
        return one(con, f"SELECT bytes FROM nvme_stats() WHERE target = '{path}' AND operation = 'read'")


def test_an_ordinary_file_too(tmp_path, expected):
    path = f"{tmp_path}/x.duckdb"
    make(f"direct://{path}")
    for _ in range(10):  # how many blocks DuckDB drops before it uses them is chance
        without, with_buffer = (bytes_of_a_scan(path, buffer, expected) for buffer in ("0 B", "64 MiB"))
        if with_buffer < 0.95 * without:
            return
    raise AssertionError(f"{with_buffer} bytes read with a buffer, {without} without")


def test_updates_are_seen_by_scans_that_keep_what_they_read(tmp_path):
    config = {"memory_limit": "60MB", "threads": 2, "block_allocator_memory": "0B"}
    with make_target("file-4096", tmp_path, size="1G") as target:
        make(target.path("x.duckdb"))
        with rawduck.connect(config=config) as con:
            con.execute(f"ATTACH '{target.path('x.duckdb')}' AS x")
            total = one(con, "SELECT sum(c0) FROM x.t")
            for step in range(1, 6):
                con.execute(WIDE).fetchone()
                con.execute("UPDATE x.t SET c0 = c0 + 1; CHECKPOINT x")
                con.execute(WIDE).fetchone()
                assert one(con, "SELECT sum(c0) FROM x.t") == total + step * 2_000_000
            assert one(con, "SELECT rereads_from_memory FROM nvme_volumes()") > 0
