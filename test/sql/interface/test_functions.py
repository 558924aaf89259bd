"""Table functions and settings: what they say is what is there."""

from __future__ import annotations

import datetime
import time
from itertools import pairwise

import duckdb
import pytest
import rawduck
from rawduck.render import rows
from support import attach, make_target, one, run_python

SETTINGS = {
    "nvme_engine",
    "nvme_memory_size",
    "nvme_spill_buffer",
    "nvme_reread_buffer",
    "nvme_prefetch",
    "nvme_buffer_memory",
    "nvme_placement",
    "nvme_deallocate",
    "nvme_queues",
}


def stats(con, target, operation: str) -> dict:
    query = "SELECT * FROM nvme_stats() WHERE target = ? AND operation = ?"
    return rows(con, query, [target.name, operation])[0]


def settled_stats(con, target, operation: str) -> dict:
    """Metadata is written in the background: of a command that completes meanwhile some counters know."""
    for _ in range(100):
        found = stats(con, target, operation)
        if sum(found["latencies"].values()) == found["commands"]:
            break
        time.sleep(0.05)
    return found


def test_what_is_read_and_written_has_a_class_and_each_command_a_time(con, durable_target):
    con.execute(f"ATTACH '{durable_target.path('x.duckdb')}' AS x")
    con.execute("CREATE TABLE x.t AS SELECT range AS i FROM range(200000)")
    con.execute("CHECKPOINT x")
    con.execute("INSERT INTO x.t SELECT range FROM range(20000)")
    con.execute("DETACH x")
    con.execute(f"ATTACH '{durable_target.path('x.duckdb')}' AS x")
    assert one(con, "SELECT count(*) FROM x.t") == 220000
    for operation in ("read", "write", "flush"):
        found = settled_stats(con, durable_target, operation)
        assert sum(found["latencies"].values()) == found["commands"]
        if operation == "flush":
            assert found["bytes_by_class"] is None
            continue
        classes = found["bytes_by_class"]
        assert sum(classes.values()) == found["bytes"]
        assert classes["database"] > 100_000
        assert operation == "read" or classes["wal"] > 10_000
        assert classes["metadata"] >= 4096
        assert classes["temporary"] == 0


def test_settings_have_descriptions(con):
    query = "SELECT name, description FROM duckdb_settings() WHERE name LIKE 'nvme_%'"
    found = dict(con.execute(query).fetchall())
    assert set(found) == SETTINGS
    assert all(len(found[name]) > 20 for name in SETTINGS)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_setting_takes_its_own_default(con, name):
    """And is the default again after RESET."""
    query = f"SELECT current_setting('{name}')"
    default = one(con, query)
    con.execute(f"SET {name} = '{default}'")
    assert one(con, query) == default
    con.execute(f"RESET {name}")
    assert one(con, query) == default


def test_queues_by_name(file_target, con):
    """What is not named keeps its default, whatever was set before."""
    con.execute("SET nvme_queues = 'depth=7'; SET nvme_queues = 'mode=pool'")
    assert one(con, "SELECT queue_mode || ' ' || queue_depth FROM nvme_info(?)", file_target.name) in (
        "pool 32",
        "pool 1",
    )


@pytest.mark.parametrize("text", ["", "default"])
def test_queues_by_default(file_target, con, text):
    con.execute(f"SET nvme_queues = 'mode=sync'; SET nvme_queues = '{text}'")
    assert one(con, "SELECT queue_mode FROM nvme_info(?)", file_target.name) == "thread"


def test_freed_space_is_deallocated(target, con):
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT hash(range) AS h FROM range(300000); CHECKPOINT x; DETACH x")
    file = rows(con, "SELECT * FROM nvme_files(?)", [target.name])[0]
    state = one(con, "SELECT deallocate FROM nvme_info(?)", target.name)
    con.execute("CALL nvme_reset_stats()")
    con.execute("SELECT * FROM nvme_remove(?)", [target.path("x.duckdb")])
    counted = stats(con, target, "deallocate")
    assert counted["errors"] == 0
    if target.kind.startswith("file"):
        assert state.startswith("off: the file keeps the space")
        assert counted["commands"] == 0
    elif state == "on":
        # Single header pages are less than a device can give up.
        assert 0 <= file["allocated"] - counted["bytes"] <= 3 * 16 * 1024
    else:
        assert state == "off: the device takes no hints"


def test_trim(target, con):
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT hash(range) AS h FROM range(300000); CHECKPOINT x")
    before = one(con, "SELECT sum(h) FROM x.t")
    state = one(con, "SELECT deallocate FROM nvme_info(?)", target.name)
    if state.startswith("off: "):
        with pytest.raises(duckdb.Error, match=f"{target.name}: the device is not told of free space"):
            con.execute("CALL nvme_trim(?)", [target.name])
        return
    con.execute("CALL nvme_reset_stats()")
    trimmed = one(con, "SELECT trimmed FROM nvme_trim(?)", target.name)
    assert stats(con, target, "deallocate")["bytes"] == trimmed
    assert 0 <= one(con, "SELECT free FROM nvme_info(?)", target.name) - trimmed <= 1024**2
    con.execute("DETACH x")
    attach(con, target, "x.duckdb")
    assert one(con, "SELECT sum(h) FROM x.t") == before


def test_info(target, con):
    info = rows(con, "SELECT * FROM nvme_info(?)", [target.name])[0]
    assert (info["target"], info["lba_size"], info["files"]) == (target.name, target.lba_size, 0)
    assert info["capacity"] == 256 * 1024**2
    assert info["used"] + info["free"] <= info["capacity"]
    assert 0 < info["largest_free_extent"] <= info["free"]
    assert info["engine"] in ("memory", "io_uring", "posix")
    assert info["queue_mode"] == "thread"
    assert not info["poisoned"]
    assert not info["warning"]


def test_polling_is_off_where_it_cannot_be(target, con):
    con.execute("SET nvme_queues = 'polling=on'")
    assert one(con, "SELECT polling FROM nvme_info(?)", target.name) == "off: only engine io_uring_cmd polls"


def test_volumes_lists_what_is_mounted(target, con):
    count = "SELECT count(*) FROM nvme_volumes() WHERE target = ?"
    assert one(con, count, target.name) == 0
    attach(con, target, "x.duckdb")
    mounted = rows(con, "SELECT * FROM nvme_volumes() WHERE target = ?", [target.name])[0]
    assert mounted["metadata_cache_bytes"] == 0, "nothing is read of a new volume's trees"
    assert mounted["writable"]
    assert mounted["open_handles"] >= 1
    con.execute("DETACH x")
    assert one(con, count, target.name) == 0
    # Its first writer after another mount has a checkpoint written, which the next mount reads.
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t (i INT); DETACH x")
    assert 0 < one(con, "SELECT metadata_cache_bytes FROM nvme_info(?)", target.name) <= 64 << 20


def test_files(target, con):
    before = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - datetime.timedelta(minutes=1)
    attach(con, target, "x.duckdb")
    con.execute(
        "CREATE TABLE x.t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(300000); CHECKPOINT x"
    )
    con.execute(f"COPY (SELECT 1 AS v) TO '{target.path('out/a.parquet')}'")
    found = {file["name"]: file for file in rows(con, "SELECT * FROM nvme_files(?)", [target.name])}
    database = found["x.duckdb"]
    assert database["kind"].lower() == "database"
    assert found["out/a.parquet"]["kind"].lower() == "other"
    assert database["size"] <= database["allocated"]
    assert database["modified"] >= before
    assert database["extents"] == len(database["extent_list"])
    covered = sum(extent["lba_count"] for extent in database["extent_list"]) * target.lba_size
    assert covered == database["allocated"]


def test_extents_never_overlap(target, con):
    for i in range(6):
        attach(con, target, f"x{i}.duckdb")
        con.execute(
            f"CREATE TABLE x{i}.t AS SELECT md5(range::VARCHAR) AS s FROM range({20000 * (i + 1)});"
            f"CHECKPOINT x{i}"
        )
    query = """
        SELECT e.lba, e.lba + e.lba_count AS after
        FROM (SELECT unnest(extent_list) AS e FROM nvme_files(?)) ORDER BY 1
    """
    ranges = con.execute(query, [target.name]).fetchall()
    assert len(ranges) >= 6
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
    capacity = one(con, "SELECT capacity FROM nvme_info(?)", target.name)
    assert ranges[-1][1] * target.lba_size <= capacity


def test_large_tables_lie_in_few_extents(new_target, con):
    target = new_target("file-4096", size="1G")
    attach(con, target, "x.duckdb")
    con.execute(
        "CREATE TABLE x.t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(5000000); CHECKPOINT x"
    )
    size, extents = con.execute("SELECT size, extents FROM nvme_files(?)", [target.name]).fetchone()
    assert size > 50 * 1024**2
    assert extents <= 32


def test_stats_count_what_happens(target, con):
    con.execute("SELECT * FROM nvme_reset_stats()").fetchall()
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(500000)")
    con.execute("CHECKPOINT x; DETACH x")
    writes = stats(con, target, "write")
    size = one(con, "SELECT size FROM nvme_files(?)", target.name)
    assert writes["bytes"] >= size * 0.9
    assert writes["commands"] >= writes["requests"] > 0
    con.execute("SELECT * FROM nvme_reset_stats()").fetchall()
    assert stats(con, target, "write")["bytes"] == 0
    attach(con, target, "x.duckdb", "(READ_ONLY)")
    assert one(con, "SELECT count(DISTINCT s) FROM x.t") == 500000
    reads = stats(con, target, "read")
    assert size * 0.5 <= reads["bytes"] <= size * 2
    assert reads["bounce_bytes"] <= reads["bytes"]
    assert 0 < reads["latency_p50_us"] <= reads["latency_p99_us"]
    assert reads["latency_max_us"] > 0
    assert 1 <= reads["depth_mean"] <= reads["depth_max"]
    assert stats(con, target, "write")["bytes"] == 0, "reading wrote to the volume"


def test_random_reads(target, con):
    """As many commands as reads, and from the file's own bytes: a copy of it elsewhere reads the same."""
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT hash(range) AS h FROM range(300000); CHECKPOINT x; DETACH x")
    con.execute(
        "SELECT * FROM nvme_copy(?, ?)", [target.path("x.duckdb"), target.path("y.duckdb")]
    ).fetchall()
    con.execute(f"ATTACH '{target.path('x.duckdb')}' AS x (READ_ONLY)")  # so that the volume stays mounted
    numbers = "reads, bytes, seconds > 0, first_words"
    query = f"SELECT {numbers} FROM nvme_random_reads(?, reads := 100, threads := 3)"
    before = stats(con, target, "read")["commands"]
    first = con.execute(query, [target.path("x.duckdb")]).fetchone()
    assert stats(con, target, "read")["commands"] - before == 100
    assert first[:3] == (100, 409600, True)
    assert con.execute(query, [target.path("y.duckdb")]).fetchone() == first
    for arguments, message in (
        ("reads := 0", "reads must be from 1"),
        ("bytes := 511", "bytes must be from 512"),
        ("threads := NULL", "threads must be from 1"),
        ("bytes := 33554432", "shorter than one read"),
    ):
        with pytest.raises(duckdb.Error, match=message):
            con.execute(f"SELECT * FROM nvme_random_reads(?, {arguments})", [target.path("x.duckdb")])


def test_commit_flushes(durable_target, con):
    attach(con, durable_target, "x.duckdb")
    con.execute("CREATE TABLE x.t (v INTEGER); CHECKPOINT x")
    if not one(con, "SELECT volatile_write_cache FROM nvme_info(?)", durable_target.name):
        pytest.skip(f"{durable_target.name} has no volatile write cache, so nothing is flushed")
    before = stats(con, durable_target, "flush")["commands"]
    for i in range(10):
        con.execute(f"INSERT INTO x.t VALUES ({i})")
    assert stats(con, durable_target, "flush")["commands"] >= before + 10


@pytest.mark.parametrize("engine", ["posix", "io_uring"])
@pytest.mark.parametrize("kind", ["file-4096", "loop-512"])
def test_engines(tmp_path, engine, kind):
    with make_target(kind, tmp_path) as target, rawduck.connect() as con:
        con.execute(f"SET nvme_engine = '{engine}'; SET nvme_queues = 'depth=8,max_transfer=64 KiB'")
        attach(con, target, "x.duckdb")
        con.execute(
            "CREATE TABLE x.t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(300000); CHECKPOINT x"
        )
        info = rows(con, "SELECT * FROM nvme_info(?)", [target.name])[0]
        assert (info["engine"], info["queue_depth"]) == (engine, 8 if engine == "io_uring" else 1)
        con.execute("DETACH x; SELECT * FROM nvme_reset_stats()")
        attach(con, target, "x.duckdb")
        assert con.execute("SELECT count(DISTINCT s), sum(v) FROM x.t").fetchone() == (300000, 44999850000)
        reads = stats(con, target, "read")
        assert reads["bytes"] / reads["commands"] <= 64 * 1024
        assert reads["depth_max"] <= 8


@pytest.mark.parametrize("mode", ["sync", "single", "pool", "thread"])
@pytest.mark.parametrize("kind", ["memory-4096", "file-512", "loop-4096"])
def test_queue_modes(tmp_path, mode, kind):
    with make_target(kind, tmp_path) as target, rawduck.connect(config={"threads": 8}) as con:
        con.execute(f"SET nvme_queues = 'mode={mode}'")
        attach(con, target, "x.duckdb")
        con.execute("CREATE TABLE x.t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(400000)")
        assert one(con, "SELECT queue_mode FROM nvme_info(?)", target.name) == mode
        con.execute("DETACH x")
        attach(con, target, "x.duckdb")
        wrong = "SELECT count(*), count(*) FILTER (s <> md5(v::VARCHAR)) FROM x.t"
        assert con.execute(wrong).fetchone() == (400000, 0)


def test_a_block_is_read_by_several_commands_at_once(file_target, con):
    con.execute(
        "SET nvme_engine = 'io_uring'; SET nvme_queues = 'max_transfer=64 KiB'; SET nvme_prefetch = false"
    )
    attach(con, file_target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(300000)")
    con.execute("DETACH x; SELECT * FROM nvme_reset_stats()")
    attach(con, file_target, "x.duckdb")
    assert one(con, "SELECT count(DISTINCT s) FROM x.t") == 300000
    assert stats(con, file_target, "read")["depth_max"] >= 4


def test_memory_volume_is_made_by_being_used(con):
    con.execute("SET nvme_memory_size = '64 MiB'")
    with rawduck.connect(config={}) as other:
        other.execute("ATTACH 'nvme://memory:made-by-use/x.duckdb' AS x; CREATE TABLE x.t AS SELECT 42 AS v")
    con.execute("ATTACH 'nvme://memory:made-by-use/x.duckdb' AS x")
    assert one(con, "SELECT v FROM x.t") == 42


def test_check_of_a_sound_volume(target, con):
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT range AS v FROM range(100000); DETACH x")
    findings = rows(con, "SELECT * FROM nvme_check(?)", [target.name])
    assert findings
    assert {finding["severity"] for finding in findings} == {"ok"}


def test_what_is_for_tests_is_not_what_users_load(monkeypatch):
    names = "'nvme_simulate', 'nvme_random_reads'"
    query = f"SELECT count(*) FROM duckdb_functions() WHERE function_name IN ({names})"
    code = f'print(connection.execute("{query}").fetchone()[0])'
    assert run_python(code) == "2"
    monkeypatch.delenv("RAWDUCK_TEST_FUNCTIONS")
    assert run_python(code) == "0"
    monkeypatch.setenv("RAWDUCK_TEST_FUNCTIONS", "0")
    assert run_python(code) == "0"


def test_a_target_is_named_with_its_scheme_too(con, file_target):
    con.execute(f"ATTACH '{file_target.path('x.duckdb')}' AS x")
    con.execute("DETACH x")
    named = "nvme://" + file_target.name
    for call in ("nvme_info(?)", "nvme_files(?)", "nvme_check(?)", "nvme_stats(target := ?)"):
        assert con.execute(f"FROM {call}", [named]).fetchall(), call
    assert one(con, "SELECT target FROM nvme_info(?)", named) == file_target.name
    with pytest.raises(duckdb.Error, match='"nvme://" names no target'):
        con.execute("FROM nvme_info('nvme://')")
    with pytest.raises(duckdb.Error, match="A volume is named without the files on it"):
        con.execute("FROM nvme_info(?)", [named + "/x.duckdb"])
