"""Runs queries and reads in a process of their own and takes the time, the CPU and the engine's counters.

A `Worker` is that process. Every task opens a DuckDB instance of its own, so nothing is left in DuckDB's
buffers from the task before; what the operating system caches is the caller's business (see `rawduck.cold`).
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

import rawduck
from rawduck import paths
from rawduck.direct_reader import read_ranges


@dataclass
class QueryTask:
    """One query on one database, by stock DuckDB or with the extension loaded."""

    database: str
    query: str
    extension: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    attach_options: str = "READ_ONLY"


@dataclass
class ReadTask:
    """Plain direct reads of byte ranges of a file or device, as a yardstick."""

    path: str
    ranges: list[tuple[int, int]]
    depth: int
    block_bytes: int


@dataclass
class StatsTask:
    """The engine's counters over everything this worker has done."""


@dataclass
class Result:
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    rows: list[tuple] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    #: By the engine's own count; 0 for stock DuckDB.
    bytes_read: int = 0
    bounce_bytes: int = 0
    #: What the kernel fetched from storage for this process, whoever asked.
    device_bytes: int = 0
    error: str = ""


class Worker:
    """A fresh child process; a context manager."""

    def __enter__(self) -> Worker:
        command = [sys.executable, "-m", "rawduck.measure"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def run(self, task: QueryTask | ReadTask | StatsTask) -> Result:
        """Runs one task. A failed query raises RawduckError with the engine's message."""
        pickle.dump(task, self._process.stdin)
        self._process.stdin.flush()
        try:
            result = pickle.load(self._process.stdout)
        except EOFError:
            code = self._process.wait()
            raise rawduck.RawduckError(f"the measuring process died with exit code {code}") from None
        if result.error:
            raise rawduck.RawduckError(result.error)
        return result


def run_alone(task: QueryTask | ReadTask) -> Result:
    """Runs one task in a process that does nothing else."""
    with Worker() as worker:
        return worker.run(task)


def _serve() -> None:
    # Results travel on the real standard output; anything a library prints goes to standard error instead.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        try:
            task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            result = _perform(task)
        except (duckdb.Error, rawduck.RawduckError, OSError) as error:
            result = Result(error=str(error))
        pickle.dump(result, output)
        output.flush()


def _perform(task: QueryTask | ReadTask | StatsTask) -> Result:
    if isinstance(task, QueryTask):
        return _query(task)
    if isinstance(task, ReadTask):
        return _read(task)
    return _stats()


def _query(task: QueryTask) -> Result:
    with _open(task) as connection:
        before = _bytes_read(connection) if task.extension else (0, 0)
        with _Stopwatch() as watch:
            rows = connection.execute(task.query).fetchall()
        after = _bytes_read(connection) if task.extension else (0, 0)
    read, bounced = after[0] - before[0], after[1] - before[1]
    return watch.result(rows=rows, bytes_read=read, bounce_bytes=bounced)


def _open(task: QueryTask) -> duckdb.DuckDBPyConnection:
    connect = rawduck.connect if task.extension else duckdb.connect
    connection = connect(config=task.config)
    connection.execute("SET enable_progress_bar = false")
    connection.execute(f"ATTACH {paths.quote(task.database)} AS measured ({task.attach_options})")
    connection.execute("USE measured")
    return connection


def _bytes_read(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    columns = "coalesce(sum(bytes), 0), coalesce(sum(bounce_bytes), 0)"
    query = f"SELECT {columns} FROM nvme_stats() WHERE operation = 'read'"
    total, bounced = connection.execute(query).fetchone()
    return int(total), int(bounced)


def _read(task: ReadTask) -> Result:
    with _Stopwatch() as watch:
        total = read_ranges(task.path, task.ranges, task.depth, task.block_bytes)
    return watch.result(bytes_read=total)


def _stats() -> Result:
    with rawduck.connect() as connection:
        cursor = connection.execute("SELECT * FROM nvme_stats()")
        columns = [column[0] for column in cursor.description]
        return Result(rows=cursor.fetchall(), columns=columns)


class _Stopwatch:
    def __enter__(self) -> _Stopwatch:
        self._bytes = _storage_bytes()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._wall_seconds = time.perf_counter() - self._start
        usage = resource.getrusage(resource.RUSAGE_SELF)
        user = usage.ru_utime - self._usage.ru_utime
        self._cpu_seconds = user + usage.ru_stime - self._usage.ru_stime
        self._bytes = _storage_bytes() - self._bytes

    def result(self, **more: Any) -> Result:
        return Result(self._wall_seconds, self._cpu_seconds, device_bytes=self._bytes, **more)


def _storage_bytes() -> int:
    """Bytes that the kernel fetched from storage for this process; see proc(5)."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    # Pickled classes must be found under the module's real name, not under __main__.
    from rawduck import measure

    measure._serve()
