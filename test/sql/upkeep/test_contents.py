"""`rawduck check --contents`: the checksums that DuckDB gave blocks of databases and entries of logs."""

from __future__ import annotations

import duckdb
import pytest
import rawduck
from support import Image, kill_when_ready, one, run_cli, start_python, succeeded

BLOCK = 16384
HEADERS = 3 * 4096
#: Blocks in use, blocks that are free, a log, and a snapshot.
HISTORY = f"""
path = sys.argv[1]
connection.execute(f"ATTACH '{{path}}' AS x (BLOCK_SIZE {BLOCK})")
connection.execute("CREATE TABLE x.t AS SELECT hash(range) AS h, 'row ' || range AS s FROM range(20000)")
connection.execute("CREATE TABLE x.gone AS SELECT hash(range) AS h FROM range(20000)")
connection.execute("CHECKPOINT x")
connection.execute("CALL nvme_snapshot(?, 'monday')", [path])
connection.execute("DROP TABLE x.gone")
connection.execute("UPDATE x.t SET h = 1 WHERE s = 'row 7'")
connection.execute("CHECKPOINT x")
connection.execute("SET checkpoint_threshold = '1TB'")
for i in range(20):
    connection.execute("INSERT INTO x.t SELECT range, 'later' FROM range(100)")
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def history(file_target):
    """The process is killed, so that the log stays."""
    kill_when_ready(HISTORY, file_target.path("x.duckdb"))
    return file_target


def check(target) -> list[tuple[str, str, str]]:
    with rawduck.connect() as con:
        rows = con.execute(
            "SELECT severity, what, detail FROM nvme_check(?, contents := true)", [target.name]
        )
        return rows.fetchall()


def contents(target, *severities: str) -> list[tuple[str, str]]:
    return [
        (what.removeprefix("contents of "), detail)
        for severity, what, detail in check(target)
        if what.startswith("contents of ") and severity in severities
    ]


class Place:
    """A byte of a file, on the volume that it lies on."""

    def __init__(self, target, file: str, offset: int) -> None:
        with rawduck.connect() as con:
            query = "SELECT unnest(extent_list) FROM nvme_files(?) WHERE name = ?"
            extents = [row[0] for row in con.execute(query, [target.name, file]).fetchall()]
        self._image, self.device_offset = Image(target), None
        for extent in extents:
            inside = offset - extent["file_offset"]
            if 0 <= inside < extent["lba_count"] * target.lba_size:
                self.device_offset = extent["lba"] * target.lba_size + inside

    def flip(self) -> None:
        byte = self._image.read(self.device_offset, 1)
        self._image.write(self.device_offset, bytes([byte[0] ^ 0x10]))

    def zero(self, length: int) -> None:
        self._image.write(self.device_offset, bytes(length))


def block_of_rows(target) -> int:
    """A block that the snapshot has, too, and that no list of blocks lies in."""
    for block in range(1, 30):
        place = Place(target, "x.duckdb", HEADERS + block * BLOCK + 100)
        place.flip()
        found = contents(target, "error")
        place.flip()
        if len(found) == 2 and all(detail.startswith(f"block {block} ") for _, detail in found):
            return block
    raise AssertionError("there is no such block")


def test_what_is_sound(history):
    found = dict(contents(history, "ok"))
    assert contents(history, "warning", "error") == []
    assert set(found) == {"x.duckdb", "x.duckdb.wal", "x.duckdb@monday"}
    assert "entries hold" in found["x.duckdb.wal"]
    assert int(found["x.duckdb.wal"].split()[3]) >= 40, "each INSERT has two entries at least"
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{history.path('x.duckdb')}' AS x (READ_ONLY)")
        used = one(con, "SELECT used_blocks FROM pragma_database_size() WHERE database_name = 'x'")
    assert found["x.duckdb"] == f"the checksums of {used} blocks of {BLOCK} bytes in use hold"


def test_each_block_that_is_in_use_is_checked(history):
    """And no other one is: of a free block nobody knows what it should hold."""
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{history.path('x.duckdb')}' AS x (READ_ONLY)")
        total, used = con.execute(
            "SELECT total_blocks, used_blocks FROM pragma_database_size() WHERE database_name = 'x'"
        ).fetchone()
    assert total > used > 5
    noticed = 0
    for block in range(total):
        offset = HEADERS + block * BLOCK
        place = Place(history, "x.duckdb", offset + 5000)
        if place.device_offset is None:
            continue  # a hole: free
        place.flip()
        problems = [detail for what, detail in contents(history, "error") if what == "x.duckdb"]
        assert all(f"block {block}" in detail for detail in problems), problems
        noticed += len(problems)
        place.flip()
    assert noticed == used
    assert contents(history, "warning", "error") == []


def test_damage_that_the_check_of_metadata_cannot_see(history):
    block = block_of_rows(history)
    offset = HEADERS + block * BLOCK
    Place(history, "x.duckdb", offset + 100).flip()
    assert "sound" in succeeded("check", history.name)
    result = run_cli("check", "--contents", history.name)
    assert result.returncode == 1
    text = " ".join(result.stdout.split())
    assert "contents of x.duckdb" in text
    assert f"block {block} at byte offset {offset}: its checksum is wrong" in text
    query = f"ATTACH '{history.path('x.duckdb')}' AS x (READ_ONLY); SELECT sum(hash(t)) FROM x.t"
    with rawduck.connect() as con, pytest.raises(duckdb.Error, match=r"(?i)checksum|corrupt"):
        con.execute(query)


@pytest.mark.parametrize("page", [0, 1, 2])
def test_headers(history, page):
    Place(history, "x.duckdb", page * 4096 + 100).flip()
    problems = [detail for what, detail in contents(history, "error") if what == "x.duckdb"]
    assert len(problems) == 1
    assert ("main header" if page == 0 else f"database header {page}") in problems[0]


@pytest.fixture
def log(history) -> list[int]:
    """Where its entries begin: the length, the checksum, and what they have."""
    with rawduck.connect() as con:
        content = one(con, "SELECT content FROM read_blob(?)", history.path("x.duckdb.wal"))
    for start in range(16, 200):  # where the entry that says the version ends
        entries, at = [], start
        while at + 16 <= len(content):
            entries.append(at)
            at += 16 + int.from_bytes(content[at : at + 8], "little")
        if at == len(content) and len(entries) > 40:
            return entries
    raise AssertionError("no entries were found")


def test_an_entry_of_the_log(history, log):
    entry = log[len(log) // 2]
    for offset in (8, 16, 17):
        place = Place(history, "x.duckdb.wal", entry + offset)
        place.flip()
        ((what, problem),) = contents(history, "error")
        assert what == "x.duckdb.wal"
        assert problem.startswith(f"entry at byte offset {entry}: its checksum is wrong")
        place.flip()


def test_the_length_of_an_entry(history, log):
    """DuckDB takes the rest of the log for what a crash has left, and does not replay it."""
    entry = log[len(log) // 2]
    Place(history, "x.duckdb.wal", entry + 4).flip()
    ((what, doubt),) = contents(history, "warning")
    assert what == "x.duckdb.wal"
    assert doubt.startswith(f"the entry at byte offset {entry} is not whole")


def test_the_last_commit_before_a_database_was_closed(file_target):
    """It was whole when the volume was left, so it is no commit that was cut off."""
    with rawduck.connect() as con:
        con.execute("PRAGMA disable_checkpoint_on_shutdown")
        con.execute("SET checkpoint_threshold = '1TB'")
        con.execute(f"ATTACH '{file_target.path('x.duckdb')}' AS x")
        con.execute("CREATE TABLE x.t AS SELECT 1 AS i, 'early' AS s")
        con.execute("INSERT INTO x.t SELECT range, repeat('y', 30) FROM range(3000)")
        con.execute("DETACH x")
        size = one(con, "SELECT size FROM nvme_files(?) WHERE name = 'x.duckdb.wal'", file_target.name)
    Place(file_target, "x.duckdb.wal", size - 5000).flip()
    ((what, problem),) = contents(file_target, "error")
    assert what == "x.duckdb.wal"
    assert "its checksum is wrong" in problem
    with rawduck.connect() as con, pytest.raises(duckdb.Error, match="checksum"):
        con.execute(f"ATTACH '{file_target.path('x.duckdb')}' AS x")


def test_a_block_of_zeros(history):
    Place(history, "x.duckdb", HEADERS + block_of_rows(history) * BLOCK).zero(BLOCK)
    assert contents(history, "error") == []
    warnings = contents(history, "warning")
    assert [what for what, _ in warnings] == ["x.duckdb", "x.duckdb@monday"]
    assert all("1 blocks that nothing says are free have only zeros" in detail for _, detail in warnings)


def test_beside_a_writer(file_target):
    with start_python(HISTORY, file_target.path("x.duckdb")) as writer:
        assert writer.stdout.readline().startswith("ready")
        assert contents(file_target, "warning", "error") == []
        assert set(dict(contents(file_target, "ok"))) == {"x.duckdb", "x.duckdb.wal", "x.duckdb@monday"}
        Place(file_target, "x.duckdb", HEADERS + block_of_rows(file_target) * BLOCK + 100).flip()
        assert [what for what, _ in contents(file_target, "error")] == ["x.duckdb", "x.duckdb@monday"]


def test_beside_checkpoints_that_make_the_file_shorter(file_target):
    """DuckDB truncates a file before its header counts fewer blocks."""
    code = f"""
        connection.execute(f"ATTACH '{{sys.argv[1]}}' AS x (BLOCK_SIZE {BLOCK})")
        for i in range(60):
            rows = i % 3 * 40000
            connection.execute(f"CREATE OR REPLACE TABLE x.t AS SELECT hash(range) AS h FROM range({{rows}})")
            connection.execute("CHECKPOINT x")
            if i == 0:
                print("ready", flush=True)
    """
    checks = 0
    with start_python(code, file_target.path("x.duckdb")) as writer:
        assert writer.stdout.readline().startswith("ready")
        while writer.poll() is None:
            assert contents(file_target, "warning", "error") == []
            checks += 1
        assert writer.returncode == 0, writer.stderr.read()
        assert checks > 3


def test_nothing_is_written_where_nobody_writes(history):
    before = Image(history).read(0, 1 << 22)
    assert contents(history, "error") == []
    assert Image(history).read(0, 1 << 22) == before


def test_what_this_process_has_attached(target, con):
    con.execute(f"ATTACH '{target.path('x.duckdb')}' AS x (BLOCK_SIZE {BLOCK})")
    con.execute("CREATE TABLE x.t AS SELECT hash(range) AS h FROM range(20000)")
    con.execute("CHECKPOINT x")
    query = "SELECT severity, detail FROM nvme_check(?, contents := true) WHERE what LIKE 'contents%'"
    found = con.execute(query, [target.name]).fetchall()
    # No other process reaches memory, so nothing is kept for readers there.
    expected = "warning" if target.name.startswith("memory:") else "ok"
    assert {severity for severity, _ in found} == {expected}, found


def test_an_encrypted_database(file_target, con):
    con.execute("SET force_mbedtls_unsafe = true")
    con.execute(f"ATTACH '{file_target.path('x.duckdb')}' AS x (ENCRYPTION_KEY 'secret')")
    con.execute("CREATE TABLE x.t AS SELECT range FROM range(1000)")
    con.execute("DETACH x")
    (found,) = contents(file_target, "ok", "warning", "error")
    assert "it is encrypted" in found[1]


def test_a_database_of_zeros_is_no_crash(file_target, con):
    """Whatever the bytes are."""
    con.execute(f"ATTACH '{file_target.path('x.duckdb')}' AS x")
    con.execute("CREATE TABLE x.t AS SELECT range FROM range(100000)")
    con.execute("DETACH x")
    for offset, value in ((4096 + 16, b"\xff" * 8), (4096 + 24, b"\x01" * 8), (8192 + 40, b"\x03" * 8)):
        place = Place(file_target, "x.duckdb", offset)
        Image(file_target).write(place.device_offset, value)
        assert contents(file_target, "error") != []


def test_what_was_received_in_part_is_not_damaged(file_target, con, new_target, tmp_path):
    con.execute(f"ATTACH '{file_target.path('d.duckdb')}' AS d")
    con.execute("CREATE TABLE d.t AS SELECT hash(range) FROM range(700000)")
    con.execute("DETACH d")
    con.execute(f"CALL nvme_snapshot('{file_target.path('d.duckdb')}', 'm')")
    stream = tmp_path / "stream"
    con.execute(f"CALL nvme_send('{file_target.path('d.duckdb@m')}', '{stream}')")
    whole = stream.read_bytes()
    stream.write_bytes(whole[: len(whole) // 2])
    other = new_target("file-4096")
    received = f"CALL nvme_receive('{stream}', '{other.path('d.duckdb')}')"
    with pytest.raises(duckdb.Error, match=r"cut off|ends"):
        con.execute(received)
    assert [name for name, detail in contents(other, "ok") if "not whole yet" in detail] == [
        "d.duckdb.receiving"
    ]
    assert contents(other, "error") == []
    stream.write_bytes(whole)
    con.execute(received)
    assert contents(other, "error") == []
