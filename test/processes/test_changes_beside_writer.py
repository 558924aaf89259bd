"""Snapshots, clones and removals, asked of the process that has the volume open for writing."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest
import rawduck
from live_volume import attach, commit, connection, state
from workers import workers

RAWDUCK = Path(rawduck.__file__).parents[4] / "bin" / "rawduck"
#: A request: magic, kind, number, bytes that follow.
_SNAPSHOT_KIND = 3


def shell(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([RAWDUCK, *arguments], capture_output=True, text=True, timeout=60, check=False)


def snapshots(volume: str) -> list[str]:
    rows = rawduck.connect().execute("SELECT snapshot FROM nvme_snapshots(?) ORDER BY 1", [volume])
    return [name for (name,) in rows.fetchall()]


def test_another_process_makes_and_drops_them_while_the_writer_commits(volume):
    with workers(3) as (writer, other, reader):
        attach(writer, volume)
        for n in range(1, 20):
            commit(writer, n)
            other.run(f"CALL nvme_snapshot('nvme://{volume}/x.duckdb', 's{n}')")
            if n > 2:
                other.run(f"CALL nvme_drop_snapshot('nvme://{volume}/x.duckdb@s{n - 2}')")
        assert snapshots(volume) == ["s18", "s19"]
        for n in (18, 19):
            reader.run(f"ATTACH 'nvme://{volume}/x.duckdb@s{n}' AS s{n} (READ_ONLY)")
            assert state(reader, f"s{n}") == n


def test_what_was_asked_for_is_durable_when_the_answer_comes(volume):
    with workers(3) as (writer, other, next_writer):
        attach(writer, volume)
        commit(writer, 1)
        other.run(f"CALL nvme_snapshot('nvme://{volume}/x.duckdb', 'kept')")
        other.run(f"CALL nvme_clone('nvme://{volume}/x.duckdb@kept', 'nvme://{volume}/copy.duckdb')")
        writer.kill()
        assert snapshots(volume) == ["kept"]
        next_writer.run(f"ATTACH 'nvme://{volume}/copy.duckdb' AS copy")
        assert state(next_writer, "copy") == 1


def test_a_clone_is_written_where_the_writer_is(volume):
    with workers(2) as (writer, other):
        attach(writer, volume)
        commit(writer, 1)
        other.run(f"CALL nvme_clone('nvme://{volume}/x.duckdb', 'nvme://{volume}/copy.duckdb')")
        commit(writer, 2)
        writer.run(
            f"ATTACH 'nvme://{volume}/copy.duckdb' AS copy", "INSERT INTO copy.log VALUES (7)", "DETACH copy"
        )
        assert state(writer, "x") == 2
        other.run(f"CALL nvme_remove('nvme://{volume}/copy.duckdb')")
        answer = other.ask("run", statements=[f"CALL nvme_remove('nvme://{volume}/copy.duckdb')"])
        assert 'no file "copy.duckdb"' in answer.error


def test_the_command_line_asks_too(volume):
    path = f"nvme://{volume}/x.duckdb"
    with workers(1) as (writer,):
        attach(writer, volume)
        commit(writer, 1)
        for arguments in (
            ("snapshot", f"{path}@monday"),
            ("clone", f"{path}@monday", f"nvme://{volume}/trial.duckdb"),
            ("rm", f"{path}@monday"),
            ("rm", f"nvme://{volume}/trial.duckdb", f"nvme://{volume}/trial.duckdb.wal"),
        ):
            result = shell(*arguments)
            assert result.returncode == 0, result.stderr
        assert snapshots(volume) == []
        files = rawduck.connect().execute("SELECT name FROM nvme_files(?) ORDER BY 1", [volume]).fetchall()
        assert files == [("x.duckdb",), ("x.duckdb.wal",)]
        commit(writer, 2)
        assert state(writer, "x") == 2


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CALL nvme_remove('nvme://{v}/x.duckdb')", "DETACH it there first"),
        ("CALL nvme_remove('nvme://{v}/x.duckdb.wal')", "DETACH it there first"),
        ("CALL nvme_remove('nvme://{v}/x.duckdb@held')", "belongs to a snapshot"),
        ("CALL nvme_drop_snapshot('nvme://{v}/x.duckdb@held')", "DETACH it there first"),
        ("CALL nvme_drop_snapshot('nvme://{v}/x.duckdb@none')", "no snapshot"),
        ("CALL nvme_snapshot('nvme://{v}/x.duckdb', 'held')", "exists already"),
        ("CALL nvme_snapshot('nvme://{v}/none.duckdb', 'a')", "no file"),
        ("CALL nvme_clone('nvme://{v}/x.duckdb', 'nvme://{v}/x.duckdb')", "exists already"),
    ],
)
def test_the_writers_refusal_is_told_at_once(volume, statement, said):
    with workers(2) as (writer, other):
        attach(writer, volume)
        commit(writer, 1)
        writer.run(
            f"CALL nvme_snapshot('nvme://{volume}/x.duckdb', 'held')",
            f"ATTACH 'nvme://{volume}/x.duckdb@held' AS held (READ_ONLY)",
        )
        begin = time.monotonic()
        answer = other.ask("run", statements=[statement.format(v=volume)])
        assert said in answer.error
        assert time.monotonic() - begin < 2
        assert state(writer, "held") == 1


def test_the_log_of_an_attached_database_is_not_removed(volume):
    """DuckDB has it open only from the first commit on; until then it holds what the file does not."""
    with workers(3) as (writer, next_writer, other):
        attach(writer, volume)
        commit(writer, 1)
        writer.kill()
        attach(next_writer, volume)
        answer = other.ask("run", statements=[f"CALL nvme_remove('nvme://{volume}/x.duckdb.wal')"])
        assert "the log of a database that is attached" in answer.error
        commit(next_writer, 2)
        next_writer.kill()
        attach(other, volume)
        assert state(other, "x") == 2


def test_whoever_may_only_read_changes_nothing(volume):
    """The descriptor that comes with a request says what its sender may do."""
    with workers(1) as (writer,):
        attach(writer, volume)
        commit(writer, 1)
        text = b"x.duckdb\0stolen"
        packet = b"rdread02" + struct.pack("<QQQ", _SNAPSHOT_KIND, 0, len(text)) + text
        for flags, made in ((os.O_RDONLY, []), (os.O_RDWR, ["stolen"])):
            descriptor = os.open(volume, flags)
            with connection(volume) as asking:
                socket.send_fds(asking, [packet], [descriptor])
                answered = asking.recv(100)
            os.close(descriptor)
            assert bool(answered) == bool(made)
            assert snapshots(volume) == made


def test_nobody_is_asked_where_others_only_read(volume):
    with workers(2) as (reader, other):
        reader.run(f"ATTACH 'nvme://{volume}/x.duckdb' AS x (READ_ONLY)", "FROM x.log")
        answer = other.ask("run", statements=[f"CALL nvme_snapshot('nvme://{volume}/x.duckdb', 'a')"])
        assert "holds a lock on it" in answer.error
        reader.run("DETACH x")
        other.run(f"CALL nvme_snapshot('nvme://{volume}/x.duckdb', 'a')")
        assert snapshots(volume) == ["a"]
