"""A process that does what it is told: a JSON request per line on stdin, a JSON answer per line on stdout.

Answers are {"value": …} or {"error": message}. Anything else that goes wrong ends the process with a
traceback on stderr, which Worker reports as a crash.
"""

from __future__ import annotations

import json
import os
import resource
import sys

import duckdb
import rawduck

#: Of one row of the table that kill and restart fills; the other process computes the same.
ROW = "md5(n || ':' || i) || repeat('x', 200)"


class Actions:
    """Every public method is a request. State is one connection, opened anew after `close`."""

    def __init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = rawduck.connect(config={"threads": 2})
        return self._connection

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, statements: list[str]) -> list:
        """Returns the rows of the last statement."""
        rows = []
        for statement in statements:
            rows = self.connection.execute(statement).fetchall()
        return json.loads(json.dumps(rows, default=str))

    def limit(self, name: str, amount: int | None = None, beyond: int = 0) -> None:
        """Sets a limit of this process, or lets it have so much beyond what it uses; None takes it away."""
        which = getattr(resource, name)
        if amount is None and beyond:
            amount = beyond + self._used(name)
        hard = resource.getrlimit(which)[1]
        resource.setrlimit(which, (hard if amount is None else amount, hard))

    @staticmethod
    def _used(name: str) -> int:
        if name == "RLIMIT_NOFILE":
            return max(int(entry) for entry in os.listdir("/proc/self/fd")) + 1
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()

    def commits(self, first: int, sizes: list[int], checkpoint_every: int = 0) -> None:
        """One transaction per size, each reported as {"acknowledged": n} when it is committed."""
        for n, rows in enumerate(sizes, first):
            self.connection.execute(
                f"INSERT INTO x.t SELECT {n}, i, {ROW} FROM (SELECT {n} AS n, range AS i FROM range({rows}))"
            )
            answer({"acknowledged": n})
            if checkpoint_every and n % checkpoint_every == checkpoint_every - 1:
                self.connection.execute("CHECKPOINT x")


def answer(what: dict) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    actions = Actions()
    answer({"value": "ready"})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            value = getattr(actions, request.pop("action"))(**request)
        except (duckdb.Error, rawduck.RawduckError, OSError, MemoryError) as error:
            answer({"error": str(error) or repr(error), "kind": type(error).__name__})
        else:
            answer({"value": value})
    os._exit(0)


if __name__ == "__main__":
    main()
