"""A process that works on a database beside the one that is measured, until it is told to stop."""

from __future__ import annotations

import itertools
import select
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TextIO

import duckdb

import rawduck
from rawduck import paths

COMMIT, READ, SNAPSHOT = "commit", "read", "snapshot"
_READY = "ready"


class Companion:
    """A context manager. `kind`: what it does, each `interval` seconds; nothing where it is empty."""

    def __init__(self, kind: str, database: str, interval: float) -> None:
        self._kind = kind
        self._arguments = (kind, database, str(interval))
        #: How often it did it; known at the end.
        self.done = 0

    def __enter__(self) -> Companion:
        if self._kind:
            command = [sys.executable, "-m", __name__, *self._arguments]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._process = subprocess.Popen(command, text=True, **pipes)
            if self._process.stdout.readline().strip() != _READY:
                raise rawduck.RawduckError(f"the process that is to {self._kind} beside ended at once")
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kind:
            return
        said, _ = self._process.communicate()  # its input ends with that
        if self._process.returncode != 0:
            raise rawduck.RawduckError(f"the process that {self._kind}s beside failed")
        self.done = int(said)


def _commit(connection: duckdb.DuckDBPyConnection, database: str) -> Callable[[int], object]:
    connection.execute(f"ATTACH {paths.quote(database)} AS beside")
    connection.execute("CREATE OR REPLACE TABLE beside.rawduck_bench_beside (number BIGINT)")
    return lambda number: connection.execute("INSERT INTO beside.rawduck_bench_beside VALUES (?)", [number])


def _read(connection: duckdb.DuckDBPyConnection, database: str) -> Callable[[int], object]:
    def read(_: int) -> None:
        connection.execute(f"ATTACH {paths.quote(database + '@latest')} AS beside (READ_ONLY)")
        connection.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'beside'").fetchall()
        connection.execute("DETACH beside")

    return read


def _snapshot(connection: duckdb.DuckDBPyConnection, database: str) -> Callable[[int], object]:
    name = "rawduck-bench-beside"

    def snapshot(_: int) -> None:
        connection.execute("SELECT * FROM nvme_snapshot(?, ?)", [database, name]).fetchall()
        connection.execute("SELECT * FROM nvme_drop_snapshot(?)", [f"{database}@{name}"]).fetchall()

    return snapshot


_KINDS = {COMMIT: _commit, READ: _read, SNAPSHOT: _snapshot}


def work(kind: str, database: str, interval: float, told: TextIO) -> int:
    """Returns how often it was done when `told` has ended."""
    with rawduck.connect() as connection:
        once = _KINDS[kind](connection, database)
        once(0)
        print(_READY, flush=True)
        begin = time.monotonic()
        for number in itertools.count(1):
            once(number)
            left = begin + number * interval - time.monotonic()
            if select.select([told], [], [], max(0.0, left))[0]:
                return number
    raise AssertionError("it counts for ever")


if __name__ == "__main__":
    print(work(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.stdin))
