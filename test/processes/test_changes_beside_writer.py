"""Snapshots, clones and removals, asked of the process that has the volume open for writing."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import duckdb
import pytest
import rawduck
from live_volume import attach, commit, connection, identity_of, state
from workers import Worker, workers

RAWDUCK = Path(rawduck.__file__).parents[4] / "bin" / "rawduck"
#: A request: magic, kind, number, bytes that follow.
_SNAPSHOT_KIND = 3
CTRL_C_SECONDS = 4
STOPPED_SECONDS = 6


def shell(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([RAWDUCK, *arguments], capture_output=True, text=True, timeout=60, check=False)


def snapshots(volume: str) -> list[str]:
    rows = rawduck.connect().execute("SELECT snapshot FROM nvme_snapshots(?) ORDER BY 1", [volume])
    return [name for (name,) in rows.fetchall()]


def files(volume: str) -> list[str]:
    rows = rawduck.connect().execute("SELECT name FROM nvme_files(?) ORDER BY 1", [volume])
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
        ("CALL nvme_move('nvme://{v}/x.duckdb', 'nvme://{v}/y.duckdb')", "DETACH it there first"),
        ("CALL nvme_move('nvme://{v}/x.duckdb.wal', 'nvme://{v}/y')", "DETACH it there first"),
        ("CALL nvme_move('nvme://{v}/none', 'nvme://{v}/y')", "no file"),
        ("CALL nvme_move('nvme://{v}/x.duckdb@held', 'nvme://{v}/y')", "belongs to a snapshot"),
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
        assert ("of itself" in answer.error) == ("there" in said)
        assert time.monotonic() - begin < 2
        assert state(writer, "held") == 1


def test_files_are_found_moved_and_removed_by_pattern_beside_the_writer(volume, tmp_path):
    with workers(2) as (writer, killed):
        killed.run(
            f"ATTACH 'nvme://{volume}/trial.duckdb' AS trial",
            "CREATE TABLE trial.t AS SELECT 42 AS i",
        )
        killed.kill()
        attach(writer, volume)
        commit(writer, 1)
        for name in ("a.csv", "b.csv", "c.bin"):
            writer.run(f"COPY (SELECT 7 AS i) TO 'nvme://{volume}/{name}' (FORMAT csv)")
        trial = f"nvme://{volume}/trial.duckdb"
        for arguments in (
            ("mv", f"nvme://{volume}/tri*", f"nvme://{volume}/old/"),
            ("mv", f"nvme://{volume}/old/trial.duckdb", trial),
            ("cp", f"nvme://{volume}/*.csv@latest", f"{tmp_path}/"),
            ("rm", f"nvme://{volume}/?.csv"),
        ):
            result = shell(*arguments)
            assert result.returncode == 0, result.stderr
        assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["a.csv", "b.csv"]
        writer.run(f"ATTACH '{trial}' AS trial")
        assert writer.run("FROM trial.t") == [[42]]
        writer.run("DETACH trial")
        result = shell("rm", f"nvme://{volume}/trial*", f"nvme://{volume}/c.*")
        assert result.returncode == 0, result.stderr
        assert files(volume) == ["x.duckdb", "x.duckdb.wal"]
        assert shell("rm", f"nvme://{volume}/x*").returncode != 0
        assert state(writer, "x") == 1
        query = f"SELECT sum(i) FROM read_csv('nvme://{volume}/*.csv@latest')"
        writer.run(f"COPY (SELECT 7 AS i) TO 'nvme://{volume}/d.csv' (FORMAT csv)")
        assert rawduck.connect().execute(query).fetchall() == [(7,)]


def test_what_cannot_be_copied_beside_the_writer_says_what_can(volume, tmp_path):
    with workers(1) as (writer,):
        attach(writer, volume)
        writer.run(f"COPY (SELECT 7 AS i) TO 'nvme://{volume}/a.csv' (FORMAT csv)")
        result = shell("cp", f"nvme://{volume}/a.csv", f"{tmp_path}/")
        assert result.returncode != 0
        assert "a.csv@latest" in result.stderr.replace("\n", "")
        result = shell("cp", f"nvme://{volume}/a.csv@latest", f"{tmp_path}/")
        assert result.returncode == 0, result.stderr
        assert (tmp_path / "a.csv").read_text() == "i\n7\n"


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


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CALL nvme_remove('nvme://{v}/kept.bin' || chr(0) || 'x')", "NUL"),
        ("CALL nvme_remove('nvme://{v}/' || repeat('x', 2000))", "2000 bytes"),
        ("CALL nvme_clone('nvme://{v}/x.duckdb', 'nvme://{v}/' || repeat('x', 2000))", "2000 bytes"),
        ("ATTACH 'nvme://{v}/" + "x" * 2000 + "@latest' AS l (READ_ONLY)", "bytes"),
    ],
)
def test_names_that_cannot_be_are_refused_before_anybody_is_asked(volume, statement, said):
    with workers(2) as (writer, other):
        attach(writer, volume)
        writer.run(f"COPY (SELECT 1) TO 'nvme://{volume}/kept.bin' (FORMAT csv)")
        answer = other.ask("run", statements=[statement.format(v=volume)])
        assert said in answer.error
        assert other.run(f"SELECT count(*) FROM nvme_files('{volume}') WHERE name = 'kept.bin'") == [[1]]


@contextmanager
def stopped(worker: Worker) -> Iterator[None]:
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        while not _all_threads_stand_still(worker.pid):
            time.sleep(0.001)
        yield
    finally:
        os.kill(worker.pid, signal.SIGCONT)


def _all_threads_stand_still(pid: int) -> bool:
    """On a busy machine a thread goes on for a moment after the signal."""
    stats = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


_REQUESTS = [
    "CALL nvme_move('nvme://{v}/x.duckdb', 'nvme://{v}/y.duckdb')",
    "CALL nvme_remove('nvme://{v}/x.duckdb')",
    "FROM glob('nvme://{v}/*')",
    "CALL nvme_snapshot('nvme://{v}/x.duckdb', 'a')",
    "FROM nvme_files('{v}')",
    "FROM nvme_check('{v}')",
    "ATTACH 'nvme://{v}/x.duckdb@latest' AS l (READ_ONLY)",
]


@pytest.mark.parametrize("statement", _REQUESTS)
def test_a_writer_that_is_stopped_is_named_soon(volume, statement):
    with workers(2) as (writer, other):
        attach(writer, volume)
        with stopped(writer):
            begin = time.monotonic()
            answer = other.ask("run", statements=[statement.format(v=volume)])
            assert time.monotonic() - begin < STOPPED_SECONDS
        assert f"process {writer.pid}" in answer.error
        commit(writer, 1)
        assert snapshots(volume) == []


@contextmanager
def mute_listener(volume: str) -> Iterator[None]:
    """In the place of the writer, who finds the name taken."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("\0rawduck/" + identity_of(volume))
        listener.listen()
        yield


@pytest.mark.parametrize("statement", _REQUESTS)
def test_ctrl_c_ends_the_wait_for_an_answer(volume, statement):
    """With one thread, which is the one that Python tells of a signal; DuckDB may have others do the work."""
    program = """import sys, rawduck
c = rawduck.connect(config={'threads': 1})
print('ready', flush=True)
c.execute(sys.argv[1])"""
    with mute_listener(volume), workers(1) as (writer,):
        attach(writer, volume)
        asking = subprocess.Popen(
            [sys.executable, "-c", program, statement.format(v=volume)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert asking.stdout.readline()
        time.sleep(2)
        begin = time.monotonic()
        asking.send_signal(signal.SIGINT)
        asking.communicate(timeout=60)
        assert time.monotonic() - begin < CTRL_C_SECONDS
        assert asking.returncode != 0


@pytest.mark.parametrize("statement", _REQUESTS)
def test_a_statement_that_waits_for_an_answer_can_be_interrupted(volume, statement):
    with mute_listener(volume), workers(1) as (writer,), rawduck.connect() as con:
        attach(writer, volume)
        timer = threading.Timer(1, con.interrupt)
        timer.start()
        begin = time.monotonic()
        with pytest.raises(duckdb.Error):
            con.execute(statement.format(v=volume))
        assert time.monotonic() - begin < 1 + CTRL_C_SECONDS
        timer.join()


def test_what_nobody_waits_for_any_more_is_not_done(volume):
    with workers(1) as (writer,):
        attach(writer, volume)
        with stopped(writer), connection(volume) as asking:
            text = b"x.duckdb\0late"
            packet = b"rdread03" + struct.pack("<QQQ", _SNAPSHOT_KIND, 0, len(text)) + text
            descriptor = os.open(volume, os.O_RDWR)
            socket.send_fds(asking, [packet], [descriptor])
            os.close(descriptor)
        commit(writer, 1)
        assert snapshots(volume) == []


def test_a_listener_that_takes_nobody_is_not_waited_for_long(volume):
    """Whoever is there first has the name; full, it does not even let others connect."""
    identity = identity_of(volume)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, ExitStack() as stack:
        listener.bind("\0rawduck/" + identity)
        listener.listen(0)
        stack.enter_context(connection(volume))
        begin = time.monotonic()
        with rawduck.connect() as con:
            con.execute(f"ATTACH 'nvme://{volume}/x.duckdb@latest' AS l (READ_ONLY)")
        assert time.monotonic() - begin < 30


def test_whoever_may_only_read_changes_nothing(volume):
    """The descriptor that comes with a request says what its sender may do."""
    with workers(1) as (writer,):
        attach(writer, volume)
        commit(writer, 1)
        text = b"x.duckdb\0stolen"
        packet = b"rdread03" + struct.pack("<QQQ", _SNAPSHOT_KIND, 0, len(text)) + text
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
