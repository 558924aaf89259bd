"""Runs queries and reads in a process of their own; takes time, CPU and the counters of nvme_stats().

A `Worker` is that process. Every task opens a DuckDB instance of its own, so nothing is left in DuckDB's
buffers from the task before; what the operating system caches is the caller's business
(see `rawduck.measuring.cold`).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Protocol

import duckdb

import rawduck
from rawduck import paths
from rawduck.measuring.direct_reader import read_ranges
from rawduck.measuring.system_calls import SystemCalls


@dataclass
class Result:
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    rows: list[tuple] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    #: As nvme_stats() counts them; 0 for stock DuckDB.
    bytes_read: int = 0
    bounce_bytes: int = 0
    #: What the kernel fetched from storage, and was given for it, for this process, whoever asked. Of volumes
    #: also what went past its block layer.
    device_bytes: int = 0
    written_bytes: int = 0
    #: The part of the CPU time that was spent in the kernel.
    kernel_seconds: float = 0.0
    #: Pages that the process had to be given or mapped while it worked.
    page_faults: int = 0
    #: None where they cannot be counted.
    system_calls: int | None = None
    #: What only some tasks measure, by name.
    values: dict[str, float] = field(default_factory=dict)
    error: str = ""
    #: Of a process that died over the task.
    exit_code: int = 0


class Task(Protocol):
    """Work for a `Worker`. It travels as a pickle: its class must be found by its module's name."""

    def perform(self) -> Result: ...


@dataclass
class Session:
    """How to open DuckDB on one database: stock, or with the extension loaded. All of it is plain data."""

    database: str
    extension: bool = False
    #: For `duckdb.connect`.
    config: dict[str, Any] = field(default_factory=dict)
    attach_options: str = "READ_ONLY"
    #: `SET name = value` before the database is attached; the extension's own settings go here.
    settings: dict[str, Any] = field(default_factory=dict)

    def open(self) -> duckdb.DuckDBPyConnection:
        """Connects and attaches."""
        connection = self.connect()
        self.attach(connection)
        return connection

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A new DuckDB instance with everything set."""
        connect = rawduck.connect if self.extension else duckdb.connect
        connection = connect(config=self.config)
        connection.execute("SET enable_progress_bar = false")
        for name, value in self.settings.items():
            connection.execute(f"SET {name} = {paths.quote(str(value))}")
        return connection

    def attach(self, connection: duckdb.DuckDBPyConnection) -> None:
        """The database becomes `measured`, and the default."""
        options = f" ({self.attach_options})" if self.attach_options else ""
        connection.execute(f"ATTACH {paths.quote(self.database)} AS measured{options}")
        connection.execute("USE measured")


_NOTHING_MOVED = (0, 0, 0)


@dataclass
class QueryTask(Session):
    """One query, or several statements, on one database."""

    query: str = ""
    #: Run before the clock starts and after it has stopped; the latter gives the answer instead of the query.
    before: str = ""
    after: str = ""

    def perform(self) -> Result:
        with self.open() as connection:
            if self.before:
                connection.execute(self.before)
            counted = _bytes_moved(connection) if self.extension else _NOTHING_MOVED
            with Stopwatch() as watch:
                rows = connection.execute(self.query).fetchall()
            now = _bytes_moved(connection) if self.extension else _NOTHING_MOVED
            if self.after:
                rows = connection.execute(self.after).fetchall()
        read, bounced, written = (after - before for after, before in zip(now, counted, strict=True))
        result = watch.result(rows=rows, bytes_read=read, bounce_bytes=bounced)
        if paths.is_volume_path(self.database):
            # The kernel does not count NVMe commands, nor what it does not see.
            result.device_bytes = max(result.device_bytes, read)
            result.written_bytes = max(result.written_bytes, written)
        return result


@dataclass
class ReadTask:
    """Plain direct reads of byte ranges of a file or device, as a yardstick."""

    path: str
    ranges: list[tuple[int, int]]
    depth: int
    block_bytes: int
    huge_pages: bool = True

    def perform(self) -> Result:
        with Stopwatch() as watch:
            total = read_ranges(self.path, self.ranges, self.depth, self.block_bytes, self.huge_pages)
        return watch.result(bytes_read=total)


@dataclass
class StatsTask:
    """The counters of nvme_stats() over everything this worker has done."""

    def perform(self) -> Result:
        with rawduck.connect() as connection:
            cursor = connection.execute("SELECT * FROM nvme_stats()")
            columns = [column[0] for column in cursor.description]
            return Result(rows=cursor.fetchall(), columns=columns)


class Worker:
    """A child process; a context manager. One that forks performs every task in a fresh child of its own,
    which costs less than starting Python again. Where it is ended, as the kernel may do for want of memory,
    the next task has a new one. `environment`: in addition to ours."""

    def __init__(self, fork: bool = False, environment: dict[str, str] | None = None) -> None:
        self._fork = fork
        self._environment = {**os.environ, **(environment or {})}

    def __enter__(self) -> Worker:
        self._start()
        return self

    def _start(self) -> None:
        command = [sys.executable, "-m", "rawduck.measuring.measure", *(["--fork"] if self._fork else [])]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=self._environment, **pipes)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self._process.terminate()  # nobody waits for what it measures
        self._end()

    def _end(self) -> int:
        """Returns the exit code."""
        with contextlib.suppress(BrokenPipeError):  # it is gone, and a task for it still in the buffer
            self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait()

    def run(self, task: Task) -> Result:
        """Runs one task. A failed query raises RawduckError with DuckDB's message. A process that died of
        an interrupt raises KeyboardInterrupt: a terminal sends it to all of them."""
        try:
            pickle.dump(task, self._process.stdin)
            self._process.stdin.flush()
            result = pickle.load(self._process.stdout)
        except (BrokenPipeError, EOFError):
            result = Result(exit_code=self._end())
            self._start()
        if result.exit_code == -signal.SIGINT:
            raise KeyboardInterrupt
        if result.exit_code:
            raise rawduck.RawduckError(
                f"the measuring process died with exit code {result.exit_code} over {task}"
            )
        if result.error:
            raise rawduck.RawduckError(result.error)
        return result


class Stopwatch:
    """Takes time, CPU and the kernel's counters of this process; a context manager."""

    #: Begun before the process has other threads, which are then counted too; None where that is impossible.
    system_calls: ClassVar[SystemCalls | None] = None

    def __enter__(self) -> Stopwatch:
        self._calls = self.system_calls.count() if self.system_calls else None
        self._bytes = _storage_bytes()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._wall_seconds = time.perf_counter() - self._start
        usage, before = resource.getrusage(resource.RUSAGE_SELF), self._usage
        self._kernel_seconds = usage.ru_stime - before.ru_stime
        self._cpu_seconds = usage.ru_utime - before.ru_utime + self._kernel_seconds
        self._faults = usage.ru_minflt - before.ru_minflt + usage.ru_majflt - before.ru_majflt
        if self.system_calls:
            self._calls = self.system_calls.count() - self._calls
        read, written = _storage_bytes()
        self._bytes = (read - self._bytes[0], written - self._bytes[1])

    def result(self, **more: Any) -> Result:
        return Result(
            self._wall_seconds,
            self._cpu_seconds,
            device_bytes=self._bytes[0],
            written_bytes=self._bytes[1],
            kernel_seconds=self._kernel_seconds,
            page_faults=self._faults,
            system_calls=self._calls,
            **more,
        )


def _bytes_moved(connection: duckdb.DuckDBPyConnection) -> tuple[int, int, int]:
    """Read, copied of it, and written, as the engine counts them."""
    sums = [
        f"coalesce(sum({column}) FILTER (operation = '{operation}'), 0)::BIGINT"
        for column, operation in (("bytes", "read"), ("bounce_bytes", "read"), ("bytes", "write"))
    ]
    return connection.execute(f"SELECT {', '.join(sums)} FROM nvme_stats()").fetchone()


def _storage_bytes() -> tuple[int, int]:
    """Bytes that the kernel fetched from storage and was given for it by this process; see proc(5)."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["read_bytes"]), int(counters["write_bytes"])


def _serve(fork: bool) -> None:
    # Results travel on the real standard output; anything a library prints goes to standard error instead.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    child = 0

    def end(*_: object) -> None:
        if child:
            _end_child(child)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    # An interrupt at the terminal reaches this process too. Who started it reports it; this one is silent.
    # Where interrupts are ignored, as in a shell's background job, they stay so.
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    interrupted = signal.SIG_IGN if ignored else signal.SIG_DFL
    signal.signal(signal.SIGINT, signal.SIG_IGN if fork else interrupted)
    while True:
        try:
            task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if not fork:
            _answer(task, output)
            continue
        # This process has imported everything and opened nothing, so that a child of it is as good as new.
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGINT, interrupted)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _answer(task, output)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        child = 0
        if status != 0:
            _send(Result(exit_code=status), output)


def _end_child(child: int) -> None:
    """It may have to end what it has started on a device first, and gets some time for it."""
    for number, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 0.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(child, os.WNOHANG)[0] == 0:
                    time.sleep(0.01)
                    continue
            return


def _answer(task: Task, output: BinaryIO) -> None:
    if not Stopwatch.system_calls:
        with contextlib.suppress(OSError):  # what cannot be counted is missing in the result
            Stopwatch.system_calls = SystemCalls()
    try:
        result = task.perform()
    except (duckdb.Error, rawduck.RawduckError, OSError) as error:
        result = Result(error=str(error))
    _send(result, output)


def _send(result: Result, output: BinaryIO) -> None:
    try:
        pickle.dump(result, output)
        output.flush()
    except BrokenPipeError:
        os._exit(0)  # whoever asked was interrupted and is gone


if __name__ == "__main__":
    # Pickled classes must be found under the module's real name, not under __main__.
    from rawduck.measuring import measure

    measure._serve(fork="--fork" in sys.argv[1:])
