"""direct:// files: the same bytes as stock DuckDB, the same locks, no page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import textwrap

import duckdb
import pytest
import rawduck

ROWS = 300_000
CHECKSUM = [(ROWS, ROWS * (ROWS - 1) // 2, f"value {ROWS - 1}")]
FILL = f"CREATE TABLE t AS SELECT range i, 'value ' || range s FROM range({ROWS})"
SUMMARY = "SELECT count(*), max(i) * (max(i) + 1) // 2, max_by(s, i) FROM {}t"


@pytest.fixture
def con():
    with rawduck.connect() as connection:
        yield connection


@pytest.fixture
def database(tmp_path):
    return tmp_path / "sales.duckdb"


def fill(con, database, options=""):
    con.execute(f"ATTACH 'direct://{database}' AS d {options}")
    con.execute(FILL.replace("TABLE t", "TABLE d.t"))


def summary(con, name="d."):
    return con.execute(SUMMARY.format(name)).fetchall()


def run_python(code, *arguments):
    """Another process; what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return result.stdout.strip() + result.stderr.strip()


STOCK_OPEN = """
    import duckdb, sys
    try:
        duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read").close()
        print("opened")
    except duckdb.IOException as error:
        print(error)
"""

HOLD_OPEN = """
    import duckdb, sys
    con = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
    print("holding", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def stock_holder(database):
    """Opens the database in another process with stock DuckDB, until the test ends."""
    holders = []

    def hold(mode):
        command = [sys.executable, "-c", textwrap.dedent(HOLD_OPEN), str(database), mode]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert holder.stdout.readline().strip() == "holding"
        holders.append(holder)

    yield hold
    for holder in holders:
        holder.communicate(timeout=60)


def test_stock_reads_what_direct_wrote(con, database):
    fill(con, database)
    con.execute("DETACH d")
    with duckdb.connect(str(database), read_only=True) as stock:
        assert summary(stock, "") == CHECKSUM


def test_direct_reads_and_changes_what_stock_wrote(con, database):
    with duckdb.connect(str(database)) as stock:
        stock.execute(FILL)
    con.execute(f"ATTACH 'direct://{database}' AS d")
    assert summary(con) == CHECKSUM
    con.execute("DELETE FROM d.t WHERE i % 2 = 1")
    con.execute("DETACH d")
    with duckdb.connect(str(database), read_only=True) as stock:
        assert stock.execute("SELECT count(*) FROM t").fetchall() == [(ROWS // 2,)]


@pytest.mark.parametrize("engine", ["posix", "io_uring", "auto"])
def test_every_engine(con, database, engine):
    con.execute(f"SET nvme_engine = '{engine}'")
    fill(con, database)
    con.execute("CHECKPOINT d")
    con.execute("DETACH d")
    con.execute(f"ATTACH 'direct://{database}' AS d")
    assert summary(con) == CHECKSUM


@pytest.mark.parametrize("mode", ["thread", "pool", "single", "sync"])
def test_every_queue_mode(con, database, mode):
    con.execute(f"SET nvme_queues = 'mode={mode},depth=4'")
    fill(con, database)
    con.execute("DETACH d")
    con.execute(f"ATTACH 'direct://{database}' AS d")
    assert summary(con) == CHECKSUM


@pytest.mark.parametrize(
    "options", ["(BLOCK_SIZE 16384)", "(IO_MODE 'DIRECT_IO')", "(ENCRYPTION_KEY 'secret')"]
)
def test_attach_options(con, database, options):
    con.execute("SET force_mbedtls_unsafe = true")  # stock DuckDB without httpfs encrypts only so
    fill(con, database, options)
    con.execute("DETACH d")
    con.execute(f"ATTACH 'direct://{database}' AS d {options}")
    assert summary(con) == CHECKSUM


def test_relative_path_is_below_the_working_directory(con, database, monkeypatch):
    monkeypatch.chdir(database.parent)
    con.execute("ATTACH 'direct://sales.duckdb' AS d")
    con.execute(FILL.replace("TABLE t", "TABLE d.t"))
    path = con.execute("SELECT path FROM duckdb_databases() WHERE database_name = 'd'").fetchone()[0]
    assert path == f"direct://{database.resolve()}"


def test_home_directory(con, database):
    con.execute(f"SET home_directory = '{database.parent}'")
    con.execute("ATTACH 'direct://~/sales.duckdb' AS d")
    assert database.exists()


def test_symbolic_link_is_the_same_database(con, database):
    fill(con, database)
    (database.parent / "link.duckdb").symlink_to(database)
    with pytest.raises(duckdb.Error, match="already attached"):
        con.execute(f"ATTACH 'direct://{database.parent}/link.duckdb' AS again")


@pytest.mark.parametrize("options", ["", ", USE_TMP_FILE true"])
def test_a_link_to_an_open_file_is_not_replaced(con, tmp_path, options):
    with (tmp_path / "log").open("w") as log:
        log.write("kept")
        log.flush()
        link = tmp_path / "out"  # as /dev/stdout is one
        link.symlink_to(f"/proc/self/fd/{log.fileno()}")
        with pytest.raises(duckdb.Error, match="leads to a file that a process has open"):
            con.execute(f"COPY (SELECT 1) TO 'direct://{link}' (FORMAT csv{options})")
        assert link.is_symlink()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "out"]
        assert link.read_text() == "kept"


@pytest.mark.parametrize("mode", ["read", "write"])
def test_direct_writer_keeps_stock_out(con, database, mode):
    fill(con, database)
    assert "Could not set lock" in run_python(STOCK_OPEN, database, mode)
    con.execute("DETACH d")
    assert run_python(STOCK_OPEN, database, mode) == "opened"


FORK = """
    import duckdb, os, rawduck, sys
    con = rawduck.connect(config={"threads": 1})
    con.execute(f"ATTACH 'direct://{sys.argv[1]}' AS d")
    con.execute("CREATE TABLE d.t (i INTEGER)")
    con.execute("CHECKPOINT d")
    con.execute(sys.argv[2])
    child = os.fork()
    if child == 0:
        try:
            con.execute("INSERT INTO d.t VALUES (-2)")
        except duckdb.Error as error:
            print("before fork()" in str(error), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    con.execute("INSERT INTO d.t VALUES (-3)")
    os._exit(0)  # the log is left to be replayed
"""


@pytest.mark.parametrize(("first", "rows"), [("SELECT 1", [-3]), ("INSERT INTO d.t VALUES (-1)", [-1, -3])])
def test_a_forked_child_does_not_write_to_its_parents_database(database, first, rows):
    """Whether there is a log already or not."""
    assert run_python(FORK, database, first) == "True"
    with duckdb.connect(str(database)) as stock:
        assert stock.execute("SELECT list(i ORDER BY i DESC) FROM t").fetchone() == (rows,)


def test_stock_writer_keeps_direct_out(con, database, stock_holder):
    stock_holder("write")
    for options in ("", "(READ_ONLY)"):
        with pytest.raises(duckdb.IOException, match=r"process \d+ .*holds a lock"):
            con.execute(f"ATTACH 'direct://{database}' AS d {options}")


def test_readers_share(con, database, stock_holder):
    with duckdb.connect(str(database)) as stock:
        stock.execute(FILL)
    stock_holder("read")
    with pytest.raises(duckdb.IOException, match="holds a lock"):
        con.execute(f"ATTACH 'direct://{database}' AS d")
    con.execute(f"ATTACH 'direct://{database}' AS d (READ_ONLY)")
    assert summary(con) == CHECKSUM
    assert run_python(STOCK_OPEN, database, "read") == "opened"
    assert "Could not set lock" in run_python(STOCK_OPEN, database, "write")


def test_direct_keeps_stock_out_within_the_process(con, database):
    fill(con, database)
    with pytest.raises(duckdb.IOException, match="Could not set lock"):
        con.execute(f"ATTACH '{database}' AS stock")
    assert "Could not set lock" in run_python(STOCK_OPEN, database, "write")


@pytest.mark.parametrize("options", ["", "(READ_ONLY)"])
def test_stock_keeps_direct_out_within_the_process_and_keeps_its_lock(con, database, options):
    con.execute(f"ATTACH '{database}' AS stock")
    with pytest.raises(duckdb.IOException, match="DETACH it there first"):
        con.execute(f"ATTACH 'direct://{database}' AS d {options}")
    with pytest.raises(duckdb.IOException, match="DETACH it there first"):
        con.execute(f"CALL nvme_copy('{database}', 'direct://{database}.copy')")
    # POSIX drops the locks of a process on a file when any descriptor of it is closed.
    assert "Could not set lock" in run_python(STOCK_OPEN, database, "write")


CRASH = """
    import os, sys, rawduck
    con = rawduck.connect()
    con.execute(f"ATTACH 'direct://{sys.argv[1]}' AS d")
    con.execute("SET checkpoint_threshold = '1GB'")
    con.execute("CREATE TABLE d.t (i BIGINT, s VARCHAR)")
    for commit in range(50):
        con.execute("INSERT INTO d.t SELECT ?, repeat('x', 997) FROM range(20)", [commit])
    con.execute("BEGIN; INSERT INTO d.t SELECT 1000, 'never committed' FROM range(10000)")
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("reader", ["stock", "direct"])
def test_log_survives_a_kill_and_both_replay_it(con, database, reader):
    assert run_python(CRASH, database) == ""
    log = database.with_name(database.name + ".wal")
    assert log.stat().st_size > 50 * 20 * 100
    con.execute(f"ATTACH '{'direct://' if reader == 'direct' else ''}{database}' AS d")
    assert con.execute("SELECT count(*), max(i), min(length(s)) FROM d.t").fetchall() == [(1000, 49, 997)]


def test_a_torn_log_is_cut_where_stock_cuts_it(con, database):
    assert run_python(CRASH, database) == ""
    log = database.with_name(database.name + ".wal")
    os.truncate(log, log.stat().st_size - 7)
    con.execute(f"ATTACH 'direct://{database}' AS d")
    assert con.execute("SELECT count(*), max(i) FROM d.t").fetchall() == [(980, 48)]
    con.execute("INSERT INTO d.t VALUES (1, 'after')")
    con.execute("DETACH d")
    with duckdb.connect(str(database), read_only=True) as stock:
        assert stock.execute("SELECT count(*) FROM t").fetchall() == [(981,)]


def test_file_and_log_are_not_padded(con, database):
    fill(con, database)
    with duckdb.connect(str(database.with_name("stock.duckdb"))) as stock:
        stock.execute(FILL)
        for connection, table in ((con, "d.u"), (stock, "u")):
            connection.execute(f"CREATE TABLE {table} (i INTEGER)")
            connection.execute(f"INSERT INTO {table} VALUES (1), (2), (3)")
        for suffix in ("", ".wal"):
            ours, theirs = (
                database.with_name(name + suffix).stat().st_size for name in ("sales.duckdb", "stock.duckdb")
            )
            assert abs(ours - theirs) < 64, suffix  # the log holds random identifiers


@pytest.mark.parametrize("suffix", ["parquet", "csv", "csv.gz", "json"])
def test_files_of_other_formats(con, tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    con.execute(f"COPY (SELECT range i, 'value ' || range s FROM range({ROWS})) TO 'direct://{path}'")
    for name in (f"direct://{path}", str(path), f"direct://{tmp_path}/*.{suffix}"):
        assert con.execute(f"SELECT count(*), sum(i) FROM '{name}'").fetchall() == [(ROWS, CHECKSUM[0][1])]
    assert con.execute(f"SELECT file FROM glob('direct://{tmp_path}/x*')").fetchall() == [
        (f"direct://{path}",)
    ]


def test_partitions_and_wildcards(con, tmp_path):
    con.execute(
        f"COPY (SELECT range i, range % 5 p FROM range(1000)) TO 'direct://{tmp_path}/out' "
        "(FORMAT PARQUET, PARTITION_BY (p))"
    )
    query = "SELECT count(*), sum(p) FROM read_parquet('direct://{}/out/{}', hive_partitioning = true)"
    assert con.execute(query.format(tmp_path, "**/*.parquet")).fetchall() == [(1000, 2000)]
    assert con.execute(query.format(tmp_path, "p=[12]/*.parquet")).fetchall() == [(400, 600)]


def test_overwriting_replaces_the_whole_file(con, tmp_path):
    for rows in (ROWS, 3):
        con.execute(f"COPY (FROM range({rows})) TO 'direct://{tmp_path}/x.csv'")
    assert (tmp_path / "x.csv").read_text().split() == ["range", "0", "1", "2"]


def test_export_and_import(con, database, tmp_path):
    fill(con, database)
    con.execute(f"EXPORT DATABASE d TO 'direct://{tmp_path}/exported' (FORMAT PARQUET)")
    with rawduck.connect() as other:
        other.execute(f"IMPORT DATABASE 'direct://{tmp_path}/exported'")
        assert summary(other, "") == CHECKSUM


def test_spilling(con, tmp_path):
    con.execute(f"SET temp_directory = 'direct://{tmp_path}/spill'")
    con.execute("SET memory_limit = '150MB'")
    con.execute("SET threads = 2")
    con.execute("SET preserve_insertion_order = false")
    query = (
        "SELECT count(DISTINCT h), sum(a) FROM (SELECT range a, hash(range) h FROM range(6000000) ORDER BY h)"
    )
    assert con.execute(query).fetchall() == [(6_000_000, 6_000_000 * 5_999_999 // 2)]
    written = con.execute(
        "SELECT sum(bytes) FROM nvme_stats() WHERE operation = 'write' AND target LIKE ?",
        [f"{tmp_path}/spill/%"],
    ).fetchone()[0]
    assert written > 1_000_000
    con.close()
    assert not list(tmp_path.glob("spill/duckdb_temp_*"))


def resident_pages(path):
    """Pages of the file in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size = path.stat().st_size
    vector = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with open(path, "rb") as file:
        address = ctypes.c_void_p(
            libc.mmap(
                None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), ctypes.c_long(0)
            )
        )
        assert libc.mincore(address, ctypes.c_size_t(size), vector) == 0
        assert libc.munmap(address, ctypes.c_size_t(size)) == 0
    return sum(byte & 1 for byte in vector)


def test_scans_leave_nothing_in_the_page_cache(con, database):
    """Of a small one, DuckDB's look at what kind of file it is leaves some pages there."""
    with duckdb.connect(str(database)) as stock:
        stock.execute(FILL)
        stock.execute("CREATE TABLE larger AS SELECT hash(range) AS h FROM range(1_000_000)")
    with open(database, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    con.execute(f"ATTACH 'direct://{database}' AS d (READ_ONLY)")
    assert summary(con) == CHECKSUM
    assert con.execute("SELECT count(DISTINCT h) FROM d.larger").fetchone() == (1_000_000,)
    assert resident_pages(database) == 0


@pytest.mark.parametrize("prefetch", [True, False])
def test_prefetch_reads_in_long_runs(con, database, prefetch):
    with duckdb.connect(str(database)) as stock:
        stock.execute("CREATE TABLE t AS SELECT hash(range) h, hash(range + 1) g FROM range(2000000)")
    con.execute(f"SET nvme_prefetch = {prefetch}")
    con.execute(f"ATTACH 'direct://{database}' AS d (READ_ONLY)")
    con.execute("CALL nvme_reset_stats()")
    con.execute("SELECT sum(h % 7), sum(g % 7) FROM d.t")
    requests, size = con.execute(
        "SELECT requests, bytes FROM nvme_stats() WHERE operation = 'read' AND target = ?", [str(database)]
    ).fetchone()
    per_request = size / requests
    assert per_request > 500_000 if prefetch else per_request < 300_000


def test_copy_between_a_plain_file_and_direct(con, database, tmp_path):
    with duckdb.connect(str(database)) as stock:
        stock.execute(FILL)
    assert con.execute(f"CALL nvme_copy('{database}', 'direct://{tmp_path}/copy.duckdb')").fetchall() == [
        (f"direct://{tmp_path}/copy.duckdb", database.stat().st_size)
    ]
    assert (tmp_path / "copy.duckdb").read_bytes() == database.read_bytes()
    con.execute(f"ATTACH 'direct://{tmp_path}/copy.duckdb' AS d")
    assert summary(con) == CHECKSUM


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("{}/sales.duckdb", "(IO_MODE 'MMAP')", "cannot map it into memory"),
        ("{}/missing/sales.duckdb", "", "No such file or directory"),
        ("{}/sales.duckdb", "(READ_ONLY)", "database does not exist"),
        ("{}", "", "direct:// is for regular files|Is a directory"),
        ("/dev/null", "", "direct:// is for regular files"),
        ("", "", "the path is empty"),
    ],
)
def test_errors_say_what_is_wrong(con, tmp_path, path, options, message):
    with pytest.raises(duckdb.Error, match=message):
        con.execute(f"ATTACH 'direct://{path.format(tmp_path)}' AS d {options}")


def test_fifo_is_refused_and_not_waited_for(con, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(duckdb.Error, match="direct:// is for regular files"):
        con.execute(f"ATTACH 'direct://{tmp_path}/fifo' AS d")
    with pytest.raises(duckdb.Error, match="direct:// is for regular files"):
        con.execute(f"COPY (SELECT 1) TO 'direct://{tmp_path}/fifo' (FORMAT csv)")


def test_file_system_without_direct_io_is_refused(con, tmp_path):
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "ramfs", "none", tmp_path], check=False).returncode != 0
    ):
        pytest.skip("needs a file system without O_DIRECT: mounting a ramfs takes root")
    try:
        with pytest.raises(duckdb.Error, match="O_DIRECT"):
            con.execute(f"ATTACH 'direct://{tmp_path}/sales.duckdb' AS d")
        assert not (tmp_path / "sales.duckdb").exists()
    finally:
        con.close()
        subprocess.run(["umount", tmp_path], check=True)


def test_external_access_can_be_disabled(con, database):
    fill(con, database)
    con.execute("SET enable_external_access = false")
    assert summary(con) == CHECKSUM
    with pytest.raises(duckdb.PermissionException, match="disabled by configuration"):
        con.execute(f"COPY d.t TO 'direct://{database}.csv'")


def test_a_small_file_takes_one_command_for_each_read(con, tmp_path):
    """And no second descriptor, ring or look at the disk, which hundreds of files would make dear."""
    for i in range(20):
        con.execute(f"COPY (SELECT range + {i} AS i FROM range(20_000)) TO '{tmp_path}/{i}.parquet'")
    con.execute("CALL nvme_reset_stats()")
    query = f"SELECT count(*), sum(i) FROM 'direct://{tmp_path}/*.parquet'"
    assert con.execute(query).fetchone() == (400_000, 4_003_600_000)
    counters = "SELECT requests, commands FROM nvme_stats() WHERE target = ? AND operation = 'read'"
    requests, commands = con.execute(counters, [f"{tmp_path}/*"]).fetchone()
    assert requests == commands
    assert requests <= 3 * 20
