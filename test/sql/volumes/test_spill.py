"""Temporary files on a volume."""

from __future__ import annotations

import threading
import time

import pytest
import rawduck
from support import file_names, kill_when_ready, make_target, one

ROWS = 4_000_000
# The window keeps DuckDB from dropping the sort, which does not fit into the memory of these tests.
SPILLING = f"""
    SELECT count(*), sum(v * (n % 7)), min(s), max(s) FROM (
        SELECT v, s, row_number() OVER (ORDER BY s) AS n
        FROM (SELECT range AS v, md5(range::VARCHAR) AS s FROM range({ROWS})))
"""


@pytest.fixture(scope="module")
def expected():
    with rawduck.connect() as con:
        return con.execute(SPILLING).fetchone()


@pytest.fixture(params=["memory-512", "file-512", "file-4096", "loop-512", "loop-4096"])
def spill_target(request, tmp_path):
    with make_target(request.param, tmp_path, size="1G") as made:
        yield made


def spilling_connection(target) -> rawduck.duckdb.DuckDBPyConnection:
    con = rawduck.connect(config={"memory_limit": "100MB", "threads": 2, "block_allocator_memory": "0B"})
    con.execute(f"SET temp_directory = '{target.path('tmp')}'")
    return con


def watch_temp_files(target, seen: set, stop: threading.Event) -> None:
    with rawduck.connect() as con:
        con.execute("SET nvme_spill_buffer = '28 MiB'")  # it may be the one to open the volume
        while not stop.is_set():
            query = "SELECT name, kind FROM nvme_files(?) WHERE size > 0"
            seen.update(con.execute(query, [target.name]).fetchall())
            time.sleep(0.01)


def test_spills_to_the_volume_and_gives_the_space_back(spill_target, expected):
    seen: set = set()
    stop = threading.Event()
    with spilling_connection(spill_target) as con:
        con.execute("SET nvme_spill_buffer = '28 MiB'")
        before = one(con, "SELECT used FROM nvme_info(?)", spill_target.name)
        watcher = threading.Thread(target=watch_temp_files, args=(spill_target, seen, stop))
        watcher.start()
        try:
            assert con.execute(SPILLING).fetchone() == expected
        finally:
            stop.set()
            watcher.join()
        written = "SELECT sum(bytes) FROM nvme_stats() WHERE target = ? AND operation = 'write'"
        assert one(con, written, spill_target.name) > 50_000_000
    temporary = {name for name, kind in seen if kind.lower() == "temp"}
    assert any(name.startswith("tmp/duckdb_temp_") for name in temporary), seen
    with rawduck.connect() as con:
        assert [name for name in file_names(con, spill_target) if "duckdb_temp" in name] == []
        assert one(con, "SELECT used FROM nvme_info(?)", spill_target.name) <= before + 64 * 1024


@pytest.mark.parametrize(("buffer", "from_memory"), [("0 B", False), ("1 MiB", True), ("32 MiB", True)])
def test_spilled_blocks_are_kept_and_read_ahead_within_the_limit(tmp_path, expected, buffer, from_memory):
    with make_target("file-4096", tmp_path, size="1G") as target, spilling_connection(target) as con:
        con.execute(f"SET nvme_spill_buffer = '{buffer}'")
        held = "SELECT max(spill_buffer_bytes) FROM nvme_volumes()"
        con.execute(f"ATTACH '{target.path('holder.duckdb')}' AS holder")  # keeps the volume and its counters
        assert con.execute(SPILLING).fetchone() == expected
        limit = {"0 B": 0, "1 MiB": 2**20, "32 MiB": 32 * 2**20}[buffer]
        assert one(con, held) <= limit
        reads, hits, ahead = con.execute(
            "SELECT spill_reads, spill_reads_from_memory, spill_blocks_read_ahead FROM nvme_volumes()"
        ).fetchone()
        assert (reads > 0, 0 < hits <= reads, ahead > 0) == (from_memory,) * 3


def test_temp_files_of_a_killed_process_are_gone(tmp_path):
    code = """
    import threading
    con = rawduck.connect(config={"memory_limit": "100MB", "threads": 2, "block_allocator_memory": "0B"})
    con.execute("SET enable_progress_bar = false")
    con.execute(f"SET temp_directory = 'nvme://{sys.argv[1]}/tmp'")
    threading.Thread(target=lambda: con.execute(sys.argv[2]).fetchone(), daemon=True).start()
    query = "SELECT count(*) FROM nvme_files(?) WHERE name LIKE '%duckdb_temp_%' AND size > 0"
    while connection.execute(query, [sys.argv[1]]).fetchone()[0] == 0:
        time.sleep(0.01)
    print("ready", flush=True)
    time.sleep(60)
    """
    with make_target("file-4096", tmp_path, size="1G") as target, rawduck.connect() as con:
        before = one(con, "SELECT used FROM nvme_info(?)", target.name)
        kill_when_ready(code, target.name, SPILLING)
        assert [name for name in file_names(con, target) if "duckdb_temp" in name] == []
        assert one(con, "SELECT used FROM nvme_info(?)", target.name) <= before + 64 * 1024


_READ_LENGTHS = """
    SELECT sum(bytes) FILTER (bytes <= 262144), sum(bytes)
    FROM duckdb_logs_parsed('FileSystem') WHERE op = 'READ' AND path LIKE '%wide.duckdb'
"""


def share_read_block_by_block(con, query: str) -> float:
    con.execute("CALL truncate_duckdb_logs()")
    con.execute(query).fetchall()
    single, all_of_it = con.execute(_READ_LENGTHS).fetchone()
    return float((single or 0) / all_of_it)


@pytest.mark.parametrize("how", ["volume", "direct"])
def test_while_duckdb_spills_nothing_is_read_ahead(tmp_path, how):
    total = "SELECT max(s) FROM x.t"
    with make_target("file-4096", tmp_path, size="2G") as target:
        path = target.path("wide.duckdb") if how == "volume" else f"direct://{tmp_path}/wide.duckdb"
        with rawduck.connect() as con:
            con.execute(f"ATTACH '{path}' AS x")
            con.execute(f"CREATE TABLE x.t AS SELECT md5(range::VARCHAR) AS s FROM range({ROWS})")
        with spilling_connection(target) as con:
            # Of files that are opened from now on.
            con.execute("CALL enable_logging('FileSystem', level = 'trace')")
            con.execute(f"ATTACH '{path}' AS x (READ_ONLY)")
            assert share_read_block_by_block(con, total) < 0.2
            # What is read before the first block is spilled is read ahead.
            assert share_read_block_by_block(con, f"SELECT s FROM x.t ORDER BY s OFFSET {ROWS - 1}") > 0.5
            time.sleep(0.6)
            assert share_read_block_by_block(con, total) < 0.2
