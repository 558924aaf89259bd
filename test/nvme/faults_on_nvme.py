"""What goes wrong on a device reaches the user as an error that names it, and harms nobody else: media
errors, a device that goes away, a writer that is killed while a slow device still has its commands. And freed
space, which the device has really forgotten.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import struct
import subprocess
import time
from pathlib import Path

import duckdb
import rawduck
from rawduck import render, volumes

READ_SIZE = 4096
F_OFD_GETLK = 36  # of Linux
FLOCK = "hh4xqqi4x"  # struct flock: type, whence, start, length, process


def connect(engine: str) -> duckdb.DuckDBPyConnection:
    connection = rawduck.connect(config={"threads": 2, "block_allocator_memory": "0B"})
    connection.execute(f"SET nvme_engine = '{engine}'; SET force_compression = 'uncompressed'")
    return connection


def attach_new(connection: duckdb.DuckDBPyConnection, target: str, name: str) -> None:
    """A database of this name on a volume that is formatted for it."""
    connection.execute("CALL nvme_format(?, force := true)", [target])
    connection.execute(f"ATTACH 'nvme://{target}/{name}.duckdb' AS {name}")


def failure(connection: duckdb.DuckDBPyConnection, statement: str) -> str:
    try:
        connection.execute(statement).fetchall()
    except duckdb.Error as error:
        return str(error)
    raise AssertionError(f"{statement} did not fail")


class Bystander:
    """Another database of the same process, which must not notice. Where a commit cannot be made durable, it
    needs an instance of its own: DuckDB then lets nobody use any database of that one.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, target: str) -> None:
        self.connection, self.rows = connection, 0
        attach_new(connection, target, "bystander")
        connection.execute("CREATE TABLE bystander.t (v BIGINT)")

    def lives(self) -> None:
        self.rows += 1
        self.connection.execute("INSERT INTO bystander.t VALUES (1); CHECKPOINT bystander")
        assert self.connection.execute("SELECT sum(v) FROM bystander.t").fetchone()[0] == self.rows


def media_errors(bad: str, engine: str, other: str, words: dict[str, str]) -> None:
    """BAD cannot read at 8 MiB and cannot write at 24 MiB. WORDS: what the messages say."""
    with connect(engine) as connection:
        bystander = Bystander(connection, other)
        attach_new(connection, bad, "x")
        connection.execute("CREATE TABLE x.t AS SELECT range AS v FROM range(800000)")
        connection.execute("CHECKPOINT x; DETACH x")
        connection.execute(f"ATTACH 'nvme://{bad}/x.duckdb' AS x")
        check_message(failure(connection, "SELECT sum(v) FROM x.t"), bad, "read", words["read"])
        bystander.lives()
        write = "CREATE TABLE x.more AS SELECT range AS v FROM range(3000000)"
        check_message(failure(connection, write), bad, "write", words["write"])
        bystander.lives()
        query = "SELECT operation FROM nvme_stats() WHERE target = ? AND errors > 0 ORDER BY ALL"
        assert connection.execute(query, [bad]).fetchall() == [("read",), ("write",)]


def check_message(message: str, target: str, operation: str, words: str) -> None:
    for part in (f"{target}: {operation} of ", "(LBA ", words):
        assert part in message, message


def command_timeout(target: str, controller: str, other: str) -> None:
    """A device that takes four seconds for a write, and a kernel that waits for two and then resets it."""
    (timeout,) = Path(f"/sys/class/nvme/{controller}/").glob("nvme*n1/queue/io_timeout")
    with connect("auto") as connection:
        bystander = Bystander(connection, other)
        connection.execute("SET nvme_queues = 'depth=1,max_transfer=64 KiB'")
        attach_new(connection, target, "x")
        timeout.write_text("2000")
        try:
            statement = "CREATE TABLE x.t AS SELECT range AS v FROM range(2000000)"
            check_message(failure(connection, statement), target, "write", "timed out")
        finally:
            timeout.write_text("30000")
        bystander.lives()
        connection.execute("DETACH x")


def killed_writer(target: str, engine: str, next_target: str, next_engine: str) -> None:
    """Two names of one slow device. The commands of a process that was killed must not land on what the next
    one writes: their lock lasts as long as they do.
    """
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write_for_ever(target, engine, tells)
        finally:
            os._exit(1)
    try:
        os.close(tells)
        assert os.read(told, 1) == b"1", "the writer failed before it was killed"
        time.sleep(15)  # until the device has taken what it takes quickly
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
    assert is_written(target), "no command was in flight any more, so this shows nothing"
    with connect(next_engine) as connection:
        connection.execute(f"ATTACH 'nvme://{next_target}/x.duckdb' AS x (READ_ONLY)")
        assert not is_written(target), "it did not wait"
        assert connection.execute("SELECT count(*), sum(v) FROM x.t").fetchone() == (1000, 499500)
        connection.execute("DETACH x")
        connection.execute(f"ATTACH 'nvme://{next_target}/x.duckdb' AS x")
        connection.execute("CREATE TABLE x.next AS SELECT hash(range) AS v FROM range(5000)")
        connection.execute("DETACH x")
        assert connection.execute("FROM nvme_check(?) WHERE severity <> 'ok'", [next_target]).fetchall() == []
        connection.execute(f"ATTACH 'nvme://{next_target}/x.duckdb' AS x")
        query = "SELECT count(*), bit_xor(v) FROM x.next"
        expected = "SELECT count(*), bit_xor(hash(range)) FROM range(5000)"
        assert connection.execute(query).fetchone() == connection.execute(expected).fetchone()
        assert connection.execute("SELECT count(*), sum(v) FROM x.t").fetchone() == (1000, 499500)
        connection.execute("DETACH x")


def write_for_ever(target: str, engine: str, tells: int) -> None:
    """Little in flight at a time, so that it is done within a minute."""
    with connect(engine) as connection:
        connection.execute("SET nvme_queues = 'depth=2,max_transfer=16 KiB'")
        connection.execute("CALL nvme_format(?, force := true)", [target])
        connection.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x (BLOCK_SIZE 16384)")
        connection.execute("CREATE TABLE x.t AS SELECT range AS v FROM range(1000)")
        os.write(tells, b"1")
        connection.execute("CREATE TABLE x.more AS SELECT hash(range) AS v FROM range(20000000)")


def is_written(target: str) -> bool:
    """Whether somebody has locked it for writing."""
    descriptor = os.open(target, os.O_RDWR)
    try:
        lock = fcntl.fcntl(descriptor, F_OFD_GETLK, struct.pack(FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
        return struct.unpack(FLOCK, lock)[0] != fcntl.F_UNLCK
    finally:
        os.close(descriptor)


def device_gone(target: str, engine: str, other: str, controller: str) -> None:
    """Takes the controller away, for good: the last thing that is done to it."""
    with connect(engine) as connection, connect(engine) as others:
        bystander = Bystander(others, other)
        attach_new(connection, target, "x")
        connection.execute("CREATE TABLE x.t AS SELECT range AS v FROM range(800000)")
        connection.execute("CHECKPOINT x; DETACH x")
        connection.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x")
        Path(f"/sys/class/nvme/{controller}/device/remove").write_text("1")
        check_message(failure(connection, "SELECT sum(v) FROM x.t"), target, "read", "has gone away")
        message = failure(connection, "INSERT INTO x.t VALUES (1)")
        assert target in message, message
        bystander.lives()


def namespace_full(target: str, engine: str, other: str, words: str) -> None:
    """A namespace that promises more than there is behind it: what was committed before stays."""
    with connect(engine) as connection:
        # The kernel's target calls a command of which a part had room an internal error.
        connection.execute("SET nvme_queues = 'max_transfer=4 KiB'")
        bystander = Bystander(connection, other)
        attach_new(connection, target, "x")
        connection.execute("CREATE TABLE x.t AS SELECT range AS v FROM range(800000)")
        connection.execute("CHECKPOINT x")
        statement = "CREATE TABLE x.more AS SELECT range AS v FROM range(10000000)"
        for _ in range(3):
            message = failure(connection, statement)
            if words in message:  # and not of commands that the kernel has merged, again with room for a part
                break
        check_message(message, target, "write", words)
        bystander.lives()
        connection.execute("DETACH x")
        connection.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x")
        assert connection.execute("SELECT sum(v) FROM x.t").fetchone()[0] == 800000 * 799999 // 2
        connection.execute("DETACH x")
        query = "FROM nvme_check(?) WHERE severity <> 'ok'"
        assert connection.execute(query, [target]).fetchall() == []


def refused_partition(block: str) -> None:
    """A partition that only the kernel knows."""
    subprocess.run(["addpart", block, "1", "2048", "65536"], check=True)
    try:
        with connect("io_uring_cmd") as connection:
            message = failure(connection, f"ATTACH 'nvme://{block}p1/x.duckdb' AS x")
            assert f"{block}p1" in message, message
            assert "this is a partition" in message, message
    finally:
        subprocess.run(["delpart", block, "1"], check=True)


def read_direct(block: str, offset: int) -> bytes:
    memory = mmap.mmap(-1, READ_SIZE)
    descriptor = os.open(block, os.O_RDONLY | os.O_DIRECT)
    try:
        assert os.preadv(descriptor, [memory], offset) == READ_SIZE
    finally:
        os.close(descriptor)
    return memory[:]


def deallocation(target: str, block: str, engine: str) -> None:
    """The image of this device forgets what it is told to: it then reads as zeros."""
    with connect(engine) as connection:
        attach_new(connection, target, "x")
        connection.execute(f"ATTACH 'nvme://{target}/keep.duckdb' AS keep")
        for name in ("x", "keep"):
            connection.execute(f"CREATE TABLE {name}.t AS SELECT range + 1 AS v FROM range(300000)")
            connection.execute(f"CHECKPOINT {name}")
        connection.execute("DETACH x")
        file = volumes.volume_files(connection, target)[-1]
        assert file["name"] == "x.duckdb", file
        lba = render.rows(connection, "SELECT lba_size FROM nvme_volumes()")[0]["lba_size"]
        places = [
            offset + middle
            for offset, length in volumes.byte_ranges(file, lba)
            if length >= 65536
            for middle in range(0, length, 262144)
        ]
        assert any(any(read_direct(block, place)) for place in places), "there was nothing to forget"
        connection.execute("CALL nvme_reset_stats()")
        connection.execute("SELECT * FROM nvme_remove(?)", [f"nvme://{target}/x.duckdb"])
        row = wait_for_deallocation(connection, target)
        assert row["errors"] == 0, row
        # Single header pages are less than a device can give up.
        assert 0 <= file["allocated"] - row["bytes"] <= 3 * 16 * 1024, row
        assert row["commands"] == 1, f"in one batch, not {row}"
        assert not any(any(read_direct(block, place)) for place in places)
        trimmed = connection.execute("SELECT trimmed FROM nvme_trim(?)", [target]).fetchone()[0]
        free = render.rows(connection, "SELECT free FROM nvme_volumes()")[0]["free"]
        assert 0 <= free - trimmed <= 1024**2, (free, trimmed)
        assert connection.execute("SELECT sum(v) FROM keep.t").fetchone()[0] == 300000 * 300001 // 2


def wait_for_deallocation(connection: duckdb.DuckDBPyConnection, target: str) -> render.Row:
    query = "SELECT * FROM nvme_stats() WHERE target = ? AND operation = 'deallocate'"
    for _ in range(200):
        row = render.rows(connection, query, [target])[0]
        if row["bytes"]:
            return row
        time.sleep(0.1)
    raise AssertionError("nothing was deallocated")
