"""Out of descriptors, memory, space, metadata, with the longest names: one statement fails, nothing else.

A process meets the limit at one step of a workload. Whatever its statements say from then on, the next
process finds the volume sound and all that was acknowledged, and can remove files and write.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import rawduck
from worker import ROW
from workers import Crashed, Worker, workers

MIB = 1024**2
#: What the process does, and how often it commits in between; the limit comes before one of these.
STEPS = ("attach", "load", "checkpoint", "spill", "second database", "detach")
SIZES = (1, 300, 3000, 9000, 40)
LONGEST_NAME = 255 - len(".nvme_copy-01234567")
DESCRIPTORS_LEFT = (0, 4)
MEMORY_LEFT = (1 * MIB, 60 * MIB)


def statements(step: str, target: str) -> list[str]:
    return {
        "attach": [
            f"SET temp_directory = 'nvme://{target}/tmp'",
            f"ATTACH IF NOT EXISTS 'nvme://{target}/x.duckdb' AS x",
            "CREATE TABLE IF NOT EXISTS x.t (n BIGINT, i BIGINT, s VARCHAR)",
        ],
        "load": [],
        "checkpoint": ["CHECKPOINT x"],
        "spill": [
            "SET memory_limit = '40MB'",
            "SELECT count(*) FROM (SELECT DISTINCT md5(range::VARCHAR) FROM range(400000))",
            "RESET memory_limit",
        ],
        "second database": [
            f"ATTACH 'nvme://{target}/y.duckdb' AS y",
            "CREATE TABLE y.t AS SELECT range AS v FROM range(1000)",
            "DETACH y",
        ],
        "detach": ["DETACH x"],
    }[step]


class Workload:
    """Goes on after a statement that fails, as a program would that reports it and takes the next one."""

    def __init__(self, worker: Worker, target: str) -> None:
        self._worker, self._target = worker, target
        self.acknowledged: dict[int, int] = {}
        self.messages: list[str] = []
        self._next = 0
        #: DuckDB 2.0.0 loses commits that follow one that failed for want of memory, on ordinary files too.
        self._may_commit = True

    def run(self, step: str) -> None:
        for statement in statements(step, self._target):
            answer = self._worker.ask("run", statements=[statement])
            if not answer.ok:
                self.messages.append(answer.error)
        for rows in SIZES if step == "load" else SIZES[:2]:
            self._commit(rows)

    def _commit(self, rows: int) -> None:
        if not self._may_commit:
            return
        answer = self._worker.ask("commits", first=self._next, sizes=[rows])
        if answer.ok:
            self.acknowledged[self._next] = rows
        else:
            self.messages.append(answer.error)
            self._may_commit = "Failed to commit: Failed to" not in answer.error
        self._next += 1


def look_afterwards(target: str, workload: Workload) -> None:
    """A fresh process, without limits."""
    with workers(1) as (fresh,):
        assert fresh.run(f"SELECT * FROM nvme_check('{target}') WHERE severity <> 'ok'") == []
        if workload.acknowledged:
            fresh.run(f"ATTACH 'nvme://{target}/x.duckdb' AS x")
            found = fresh.run(
                f"SELECT n, count(*), count(*) FILTER (s <> {ROW}) FROM x.t GROUP BY n ORDER BY n"
            )
            there = {n: rows for n, rows, wrong in found if wrong == 0}
            assert len(there) == len(found), found
            missing = {n: rows for n, rows in workload.acknowledged.items() if there.get(n) != rows}
            assert not missing, f"acknowledged, and not there: {missing}"
            # On a full volume there may be no room for a checkpoint; it is detached nevertheless.
            fresh.ask("run", statements=["DETACH x"])
        # Databases first, which take their logs with them.
        names = (
            f"SELECT name FROM nvme_files('{target}') WHERE kind <> 'directory' AND NOT suffix(name, '.wal')"
        )
        for (name,) in fresh.run(names):
            fresh.run(f"CALL nvme_remove('nvme://{target}/{name}')")
        assert fresh.run(f"SELECT coalesce(sum(size), 0) FROM nvme_files('{target}')") == [[0]]
        fresh.run(*statements("attach", target))
        fresh.must("commits", first=0, sizes=list(SIZES))
        fresh.run("CHECKPOINT x", "DETACH x")
        assert fresh.run(f"SELECT * FROM nvme_check('{target}') WHERE severity <> 'ok'") == []


@pytest.fixture
def target(tmp_path) -> str:
    return make_volume(tmp_path / "x.rawduck", 128 * MIB)


def make_volume(path: Path, size: int) -> str:
    with rawduck.connect() as con:
        con.execute("CALL nvme_format(?, size := ?)", [str(path), str(size)])
    return str(path)


def run_into(target: str, name: str, left: int, limited: str) -> Workload:
    """A workload that is limited before one of its steps."""
    with workers(1) as (worker,):
        worker.run("SELECT 1")
        workload = Workload(worker, target)
        for step in STEPS:
            if step == limited:
                worker.must("limit", name=name, beyond=left)
            try:
                workload.run(step)
            except Crashed:
                # DuckDB itself may end when it cannot have memory, on ordinary files too.
                assert name == "RLIMIT_AS"
                break
    assert all(workload.messages), "an error without a message"
    return workload


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("left", DESCRIPTORS_LEFT)
def test_out_of_descriptors(left, step, target):
    look_afterwards(target, run_into(target, "RLIMIT_NOFILE", left, step))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("left", MEMORY_LEFT)
def test_out_of_memory(left, step, target):
    look_afterwards(target, run_into(target, "RLIMIT_AS", left, step))


def test_volume_full(tmp_path):
    target = make_volume(tmp_path / "x.rawduck", 32 * MIB)
    with workers(1) as (worker,):
        workload = Workload(worker, target)
        for step in ("attach", *("load",) * 30, "checkpoint", "second database", "detach"):
            workload.run(step)
    assert any("full" in message for message in workload.messages)
    look_afterwards(target, workload)


@pytest.mark.long
def test_metadata_full(tmp_path):
    """By names of the greatest length, while a database on the same volume is written to."""
    target = make_volume(tmp_path / "x.rawduck", 64 * MIB)
    blob = tmp_path / "blob"
    blob.write_bytes(b"x" * 4000)
    with workers(1) as (worker,):
        workload = Workload(worker, target)
        workload.run("attach")
        refused = ""
        for number in range(4000):
            name = f"{number:04}" + "n" * (LONGEST_NAME - 4)
            answer = worker.ask("run", statements=[f"CALL nvme_copy('{blob}', 'nvme://{target}/{name}')"])
            if not answer.ok:
                refused = answer.error
                break
        assert refused, "the names never filled the metadata"
        assert target in refused
        already = len(workload.messages)
        workload.run("load")
        workload.run("checkpoint")
        assert workload.messages[already:] == [], "commits to a file that was there before failed"
    look_afterwards(target, workload)


def test_metadata_full_of_logs(tmp_path):
    """By databases with a log each: a new one may be refused, commits to those that are there are not."""
    target = make_volume(tmp_path / "x.rawduck", 64 * MIB)
    with workers(1) as (worker,):
        workload = Workload(worker, target)
        workload.run("attach")
        worker.run("SET debug_skip_checkpoint_on_commit = true")
        refused = ""
        for number in range(2000):
            statements = [f"ATTACH 'nvme://{target}/{number}.duckdb' AS d{number}"]
            statements.append(f"CREATE TABLE d{number}.t AS SELECT 1 AS v")
            answer = worker.ask("run", statements=statements)
            if not answer.ok:
                refused = answer.error
                break
        assert "the volume is full" in refused, refused
        assert number > 40
        already = len(workload.messages)
        workload.run("load")
        worker.run(
            "INSERT INTO d0.t VALUES (2)", "DETACH d1", f"CALL nvme_remove('nvme://{target}/1.duckdb')"
        )
        workload.run("checkpoint")
        assert workload.messages[already:] == [], "commits to a file that was there before failed"
        assert worker.run("SELECT count(*) FROM d0.t") == [[2]]
    look_afterwards(target, workload)
