"""Readers beside the writer: one committed state each, whoever is killed, and space only while they live."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import rawduck
from live_volume import (
    ATTACH_LATEST,
    LEAVING_SECONDS,
    attach,
    attach_latest,
    commit,
    connection,
    state,
    transaction,
)
from workers import Crashed, Worker, workers


def kept_for_readers(volume: str, worker: Worker) -> int:
    query = f"SELECT count(*) FROM nvme_snapshots('{volume}') WHERE snapshot LIKE 'latest-%'"
    return worker.run(query)[0][0]


def await_none_kept(volume: str, worker: Worker) -> None:
    deadline = time.monotonic() + LEAVING_SECONDS
    while kept_for_readers(volume, worker) > 0:
        assert time.monotonic() < deadline, "space is still kept for readers that have ended"
        time.sleep(0.02)


def test_each_reader_sees_one_commit_while_the_writer_goes_on(volume):
    with workers(4) as (writer, *readers):
        attach(writer, volume)
        seen = []
        for n, reader in enumerate(readers, 1):
            commit(writer, n)
            attach_latest(reader, volume)
            seen.append(state(reader))
            assert seen[-1] == n
        for n in range(4, 40):
            commit(writer, n)
            for reader, first in zip(readers, seen, strict=True):
                assert state(reader) == first
        assert kept_for_readers(volume, writer) == 3
        readers[0].run("DETACH latest")
        attach_latest(readers[0], volume)
        assert state(readers[0]) == 39
        for reader in readers:
            reader.run("DETACH latest")
        await_none_kept(volume, writer)


def test_what_is_read_late_is_still_there(volume):
    """Hardly anything is read before the writer has replaced all of it many times."""
    with workers(2) as (writer, reader):
        attach(writer, volume)
        for n in range(1, 6):
            commit(writer, n)  # and a checkpoint with the last: otherwise the reader has the log in memory
        attach_latest(reader, volume)
        for n in range(6, 40):
            commit(writer, n)
        assert state(reader) == 5


def test_attached_again_and_again_while_the_writer_commits_and_checkpoints(volume):
    """DuckDB opens a database twice to attach it, and its log after that: all of one instant."""
    with workers(2) as (writer, reader):
        attach(writer, volume)
        work = [statement for n in range(1, 120) for statement in (transaction(n), "FORCE CHECKPOINT x")]
        writer.send("run", statements=work)
        seen, attached = 0, 0
        while not writer.answered():
            attach_latest(reader, volume)
            now = state(reader)
            assert now >= seen
            seen = now
            reader.run("DETACH latest")
            attached += 1
        assert writer.receive().ok
        assert attached > 10
        attach_latest(reader, volume)
        assert state(reader) == 119


def test_opened_as_the_main_database_while_the_writer_checkpoints(volume):
    with workers(1) as (writer,):
        attach(writer, volume)
        work = [
            part for n in range(1, 150) for part in (f"INSERT INTO x.log VALUES ({n})", "FORCE CHECKPOINT x")
        ]
        writer.send("run", statements=work)
        last, opened = 0, 0
        while not writer.answered():
            with rawduck.connect(f"nvme://{volume}/x.duckdb@latest", read_only=True) as reader:
                count, found = reader.execute("SELECT count(*), max(n) FROM log").fetchone()
            assert count == found + 1
            assert found >= last
            last, opened = found, opened + 1
        assert writer.receive().ok
        assert opened > 3


def test_a_reader_without_a_writer_lets_one_begin(volume):
    with workers(2) as (writer, reader):
        attach_latest(reader, volume)
        attach(writer, volume)
        for n in range(1, 30):
            commit(writer, n)
            assert state(reader) == 0
        reader.run("DETACH latest")
        await_none_kept(volume, writer)


def test_a_writer_begins_while_readers_come_and_go(volume):
    """Each of them has the volume for itself for a moment."""
    with workers(3) as (writer, *readers):
        come_and_go = [
            part
            for _ in range(30)
            for part in (
                ATTACH_LATEST.format(volume),
                "DETACH latest",
            )
        ]
        for reader in readers:
            reader.send("run", statements=come_and_go)
        begun = 0
        while not all(reader.answered() for reader in readers):
            attach(writer, volume)
            begun += 1
            writer.run("DETACH x")
        assert begun > 3
        for reader in readers:
            answer = reader.receive()
            assert answer.ok, answer.error


@pytest.mark.parametrize(
    "look", ["SELECT size FROM read_blob('{}')", "FROM glob('{}')", "COPY (SELECT 1) TO '{}'"]
)
def test_what_a_query_has_looked_at_is_not_what_the_next_one_sees(volume, look):
    with workers(2) as (writer, reader):
        attach(writer, volume)
        commit(writer, 1)
        reader.ask("run", statements=[look.format(f"nvme://{volume}/x.duckdb@latest")])
        commit(writer, 2)
        attach_latest(reader, volume)
        assert state(reader) == 2


def test_readers_that_begin_at_once_keep_no_writer_out(volume):
    """Each is alone with the volume for a moment, so none of them has to keep the volume locked."""
    with workers(7) as (writer, *readers):
        for n in range(1, 4):
            for reader in readers:
                reader.send("run", statements=[ATTACH_LATEST.format(volume)])
            for reader in readers:
                answer = reader.receive()
                assert answer.ok, answer.error
            attach(writer, volume)
            commit(writer, n)
            assert {state(reader) for reader in readers} == {n - 1}
            writer.run("DETACH x")
            for reader in readers:
                reader.run("DETACH latest")


def test_what_a_killed_reader_had_is_free_again(volume):
    with workers(2) as (writer, reader):
        attach(writer, volume)
        commit(writer, 1)
        attach_latest(reader, volume)
        assert kept_for_readers(volume, writer) == 1
        reader.kill()
        await_none_kept(volume, writer)
        commit(writer, 2)


def test_a_reader_outlives_the_writer_and_the_next_one(volume):
    with workers(3) as (first, second, reader):
        attach(first, volume)
        commit(first, 1)
        attach_latest(reader, volume)
        first.kill()
        attach(second, volume)
        assert state(second, "x") == 1
        for n in range(2, 30):
            commit(second, n)
            assert state(reader) == 1
        reader.kill()
        await_none_kept(volume, second)  # it has no connection to this writer


def test_formatting_is_refused_while_somebody_reads(volume):
    with workers(2) as (other, reader):
        attach_latest(reader, volume)
        answer = other.ask("run", statements=[f"CALL nvme_format('{volume}', force := true)"])
        assert "latest" in answer.error
        assert "DETACH" in answer.error
        answer = other.ask("run", statements=[f"FROM nvme_check('{volume}', repair := true)"])
        assert "latest" in answer.error
        assert state(reader) == 0


def test_a_snapshot_of_a_reader_is_not_dropped_by_hand(volume):
    with workers(2) as (writer, reader):
        attach(writer, volume)
        attach_latest(reader, volume)
        kept = writer.run(f"SELECT path FROM nvme_snapshots('{volume}')")[0][0]
        answer = writer.ask("run", statements=[f"CALL nvme_drop_snapshot('{kept}')"])
        assert "a reader in another process has it attached" in answer.error
        assert state(reader) == 0


def test_a_snapshot_is_read_beside_the_writer(volume):
    with workers(2) as (writer, reader):
        attach(writer, volume)
        for n in range(1, 6):
            commit(writer, n)
        writer.run(f"CALL nvme_snapshot('nvme://{volume}/x.duckdb', 'monday')")
        reader.run(f"ATTACH 'nvme://{volume}/x.duckdb@monday' AS monday (READ_ONLY)")
        writer.run(f"CALL nvme_drop_snapshot('nvme://{volume}/x.duckdb@monday')")
        for n in range(6, 30):
            commit(writer, n)
        assert state(reader, "monday") == 5
        answer = reader.ask("run", statements=[f"ATTACH 'nvme://{volume}/x.duckdb' AS x (READ_ONLY)"])
        assert "lock" in answer.error
        reader.run("DETACH monday")
        await_none_kept(volume, writer)


def test_others_are_told_what_the_writer_knows(volume):
    with workers(2) as (writer, other):
        attach(writer, volume)
        commit(writer, 1)
        writer.run(f"CALL nvme_snapshot('nvme://{volume}/x.duckdb', 'monday')")
        for query in (
            f"SELECT name, kind, size, extent_list FROM nvme_files('{volume}') ORDER BY name",
            f"SELECT file, snapshot, held, created FROM nvme_snapshots('{volume}')",
            f"SELECT uuid, files, writable, epoch, log_records FROM nvme_info('{volume}')",
            f"SELECT operation, bytes, bytes_by_class, latencies FROM nvme_stats(target := '{volume}')",
        ):
            rows = writer.run(query)
            assert rows
            assert other.run(query) == rows
        answer = other.ask("run", statements=[f"CALL nvme_trim('{volume}')"])
        assert "lock" in answer.error


def test_top_shows_what_the_writer_does(volume):
    program = [str(Path(sys.executable).with_name("rawduck")), "top", volume, "--interval", "2", "-n", "2"]
    with workers(1) as (writer,):
        attach(writer, volume)
        top = subprocess.Popen([*program, "--json"], stdout=subprocess.PIPE, text=True)
        n = 0
        while top.poll() is None:
            n += 1
            commit(writer, n)
        looks = [json.loads(line) for line in top.stdout.read().splitlines()]
        assert top.returncode == 0
        assert len(looks) == 2
        assert {look["process"] for look in looks} == {writer.pid}
        written = [
            row["bytes_per_s"] for look in looks for row in look["operations"] if row["operation"] == "write"
        ]
        assert min(written) > 0
        for operation in (row for look in looks for row in look["operations"] if row["operation"] == "write"):
            assert min(operation["bytes_by_class_per_s"][name] for name in ("wal", "metadata")) > 0
            assert 0 < operation["latency_p50_us"] <= operation["latency_p99_us"]
        shown = subprocess.run(program, capture_output=True, text=True, check=True).stdout
        assert shown.count("commands/s") == 2
    # Nobody uses it any more; what looking at it takes is no load.
    idle = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert "no writer" in " ".join(idle.split())
    found = subprocess.run([*program, "--json"], capture_output=True, text=True, check=True).stdout
    looks = [json.loads(line) for line in found.splitlines()]
    assert [look["process"] for look in looks] == [None, None]
    assert {row["commands_per_s"] for look in looks for row in look["operations"]} == {0.0}


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_top_ends_when_nobody_reads_it_any_more(volume, options):
    program = [str(Path(sys.executable).with_name("rawduck")), "top", volume, "--interval", "0.05"]
    with subprocess.Popen([*program, *options], stdout=subprocess.PIPE) as top:
        try:
            assert top.stdout.readline()
            top.stdout.close()
            assert top.wait(20) == 0
        finally:
            top.kill()


@pytest.mark.parametrize("seed", range(2))
def test_whoever_is_killed_the_others_go_on(volume, seed):
    """Writers and readers come, go and are killed at any time, also while one begins to read."""
    choose = random.Random(seed)
    with ExitStack() as stack:

        def begin() -> Worker:
            return stack.enter_context(workers(1))[0]

        writer, readers = begin(), []
        attach(writer, volume)
        acknowledged = 0
        for _ in range(50):
            event = choose.choice(["commit", "commit", "read", "read", "new reader", "leave", "kill reader"])
            if choose.random() < 0.1:
                event = "kill writer"
            if event == "commit":
                acknowledged += 1
                commit(writer, acknowledged)
            elif event == "new reader" and len(readers) < 4:
                reader = begin()
                attach_latest(reader, volume)
                readers.append((reader, acknowledged))
            elif event == "read" and readers:
                reader, first = choose.choice(readers)
                assert state(reader) == first
            elif event in ("leave", "kill reader") and readers:
                reader, _ = readers.pop(choose.randrange(len(readers)))
                reader.run("DETACH latest") if event == "leave" else reader.kill()
            elif event == "kill writer":
                acknowledged = _kill_while_it_works(writer, begin, volume, acknowledged, choose)
                writer = begin()
                attach(writer, volume)
                found = state(writer, "x")
                assert found in (acknowledged, acknowledged + 1)
                acknowledged = found
        for reader, first in readers:
            assert state(reader) == first
            reader.run("DETACH latest")
        await_none_kept(volume, writer)


def _kill_while_it_works(writer: Worker, begin, volume: str, acknowledged: int, choose: random.Random) -> int:
    """It commits while another process asks to read, and is killed. Returns what is durable at least."""
    reader = begin()
    n = acknowledged + 1
    writer.send("run", statements=[transaction(n)])
    reader.send("run", statements=[ATTACH_LATEST.format(volume)])
    time.sleep(choose.random() * 0.02)
    writer.kill()
    with suppress(Crashed):
        acknowledged += writer.receive().ok
    answer = reader.receive()
    assert answer.ok, answer.error
    assert state(reader) >= acknowledged
    if choose.random() < 0.5:
        reader.kill()
    else:
        reader.run("DETACH latest")
    return acknowledged


def test_what_is_left_goes_while_others_ask(volume):
    with workers(3) as (first, second, reader):
        attach(first, volume)
        attach_latest(reader, volume)
        first.kill()
        attach(second, volume)
        commit(second, 1)
        reader.kill()
        deadline = time.monotonic() + LEAVING_SECONDS
        asking = rawduck.connect()
        while kept_for_readers(volume, second) > 0:
            assert time.monotonic() < deadline, "space is still kept for a reader that has ended"
            asking.execute(f"FROM nvme_stats(target := '{volume}')")
            time.sleep(0.2)


def _descriptors(worker: Worker) -> int:
    return len(os.listdir(f"/proc/{worker.pid}/fd"))


@pytest.mark.parametrize("packet", [b"", b"garbage"])
def test_descriptors_that_are_sent_are_closed(volume, packet):
    with workers(1) as (writer,):
        attach(writer, volume)
        commit(writer, 1)
        before = _descriptors(writer)
        with open("/dev/null", "rb") as sent:
            for count in (1, 2, 2, 5):
                with connection(volume) as asking:
                    socket.send_fds(asking, [packet], [sent.fileno()] * count)
                    assert asking.recv(1) == b""
        assert _descriptors(writer) == before


def test_a_writer_without_descriptors_waits_for_one(volume):
    """It does not try to accept those who ask, all the time."""
    with workers(1) as (writer,), ExitStack() as stack:
        attach(writer, volume)
        commit(writer, 1)
        writer.must("limit", name="RLIMIT_NOFILE", amount=_descriptors(writer))
        stack.enter_context(connection(volume))
        before = _processor_seconds(writer)
        time.sleep(1.5)
        assert _processor_seconds(writer) - before < 0.5
        commit(writer, 2)


def _processor_seconds(worker: Worker) -> float:
    fields = Path(f"/proc/{worker.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
