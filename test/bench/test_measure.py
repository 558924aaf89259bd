"""The measuring processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import rawduck
from rawduck.measuring.cold import resident_bytes
from rawduck.measuring.measure import QueryTask, Result, Stopwatch, Worker
from rawduck.measuring.memory_cap import CappedTask, MemoryCap
from support import make_target

_BUSY_SECONDS = 0.1


@dataclass
class WhoTask:
    """Tells its process from others, and whether another task was there before."""

    def perform(self) -> Result:
        before = os.environ.get("RAWDUCK_TEST_WAS_HERE", "")
        os.environ["RAWDUCK_TEST_WAS_HERE"] = "yes"
        return Result(rows=[(os.getpid(), before)])


@dataclass
class DyingTask:
    def perform(self) -> Result:
        os._exit(3)


@dataclass
class LastTask:
    """Ends the process that has forked this one."""

    def perform(self) -> Result:
        os.kill(os.getppid(), signal.SIGKILL)
        return Result(rows=[("done",)])


@dataclass
class SleepingTask:
    ready: Path

    def perform(self) -> Result:
        self.ready.touch()
        time.sleep(60)
        return Result()


@dataclass
class InterruptedTask:
    def perform(self) -> Result:
        signal.raise_signal(signal.SIGINT)
        return Result(rows=[("unharmed",)])


@dataclass
class WriteTask:
    path: Path
    mib: int

    def perform(self) -> Result:
        with self.path.open("wb") as file:
            for _ in range(self.mib):
                file.write(b"x" * 1024**2)
                os.fsync(file.fileno())
        return Result()


@dataclass
class CallingTask:
    calls: int

    def perform(self) -> Result:
        with Stopwatch() as watch:
            thread = threading.Thread(target=self._call)
            thread.start()
            self._call()
            thread.join()
        return watch.result()

    def _call(self) -> None:
        for _ in range(self.calls):
            os.getppid()


@dataclass
class BusyTask:
    path: str

    def perform(self) -> Result:
        with Stopwatch() as watch:
            until = time.process_time() + _BUSY_SECONDS
            while time.process_time() < until:
                pass
            with open(self.path, "wb") as file:
                file.write(b"x" * 1024**2)
                os.fsync(file.fileno())
        return watch.result(values={"extra": 7.0})


@pytest.fixture
def importable(monkeypatch):
    """The child must find the classes of this module."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def test_every_task_of_a_forking_worker_is_alone(importable):
    with Worker(fork=True) as worker:
        first, second = (worker.run(WhoTask()).rows[0] for _ in range(2))
    assert first[0] != second[0]
    assert (first[1], second[1]) == ("", "")
    with Worker() as worker:
        first, second = (worker.run(WhoTask()).rows[0] for _ in range(2))
    assert first[0] == second[0]
    assert second[1] == "yes"


def test_a_task_that_dies_is_an_error_and_the_next_one_works(importable):
    with Worker(fork=True) as worker:
        with pytest.raises(rawduck.RawduckError, match="exit code 3"):
            worker.run(DyingTask())
        assert worker.run(WhoTask()).rows


def test_a_worker_that_dies_is_an_error_and_the_next_task_has_a_new_one(importable):
    with Worker(fork=True) as worker:
        assert worker.run(LastTask()).rows
        with pytest.raises(rawduck.RawduckError, match="exit code -9"):
            worker.run(WhoTask())
        assert worker.run(WhoTask()).rows
        assert worker.run(LastTask()).rows


def test_an_interrupt_ends_the_task_without_a_word(importable, capfd, tmp_path):
    """The terminal sends it to every process of the group: the server stays, its child goes."""
    with Worker(fork=True) as worker:
        ready = tmp_path / "ready"
        interrupter = threading.Thread(target=_interrupt_when, args=(ready,))
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            worker.run(SleepingTask(ready))
        interrupter.join()
        assert worker.run(WhoTask()).rows
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("fork", [False, True])
def test_interrupts_that_are_ignored_stay_so_in_a_worker(importable, fork):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Worker(fork=fork) as worker:
        assert worker.run(InterruptedTask()).rows == [("unharmed",)]


def _interrupt_when(ready: Path) -> None:
    while not ready.exists():
        time.sleep(0.01)
    _interrupt_children(os.getpid())


def _interrupt_children(process: int) -> None:
    """Sends SIGINT to all that descends from a process."""
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        _interrupt_children(int(child))
        os.kill(int(child), signal.SIGINT)


def test_a_memory_cap_counts_the_page_cache(importable, tmp_path):
    try:
        cap = MemoryCap.find()
    except rawduck.RawduckError as error:
        pytest.skip(str(error))
    cached = []
    with Worker(fork=True) as worker:
        for mib in (32, 1024):
            path = tmp_path / str(mib)
            with cap.group(mib * 1024**2) as group:
                worker.run(CappedTask(WriteTask(path, 96), group))
                with path.open("rb") as file:
                    cached.append(resident_bytes(file.fileno()) // 1024**2)
            assert not Path(group).exists()
    assert cached[0] <= 32
    assert cached[1] == 96


def test_what_is_measured(importable, tmp_path):
    with Worker(fork=True) as worker:
        result = worker.run(BusyTask(str(tmp_path / "file")))
    assert 0.9 * _BUSY_SECONDS <= result.cpu_seconds < 10
    # A single thread cannot use more processor than time passes; the two clocks tick differently.
    assert result.wall_seconds >= 0.9 * result.cpu_seconds
    assert 0 <= result.kernel_seconds <= result.cpu_seconds
    assert result.written_bytes >= 1024**2
    assert result.values == {"extra": 7.0}


def test_system_calls_of_all_threads_are_counted(importable):
    with Worker(fork=True) as worker:
        counted = worker.run(CallingTask(5000)).system_calls
    if counted is None:
        pytest.skip("only root can count system calls, with tracefs mounted")
    assert 10_000 <= counted <= 11_000


def test_a_query_with_settings_before_and_after(tmp_path):
    with make_target("file-4096", tmp_path) as target:
        database = target.path("x.duckdb")
        with rawduck.connect(database) as connection:
            connection.execute("CREATE TABLE t AS SELECT range AS v FROM range(1000)")
        task = QueryTask(
            database,
            extension=True,
            config={"threads": 1},
            attach_options="",
            settings={"nvme_queues": "mode=single"},
            before="CREATE TABLE made AS SELECT 1 AS one",
            query="INSERT INTO made SELECT sum(v) FROM t",
            after="SELECT one, current_setting('nvme_queues'), current_setting('threads') FROM made",
        )
        with Worker(fork=True) as worker:
            assert worker.run(task).rows == [(1, "mode=single", 1), (499500, "mode=single", 1)]
            with pytest.raises(rawduck.RawduckError, match="missing"):
                worker.run(QueryTask(database, extension=True, query="FROM missing"))
