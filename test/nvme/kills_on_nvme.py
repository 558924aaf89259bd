"""Writers that are killed while a slow device has their commands: `kills_on_nvme.py RESULTS TARGET COUNT`,
inside the guest. TARGET is a namespace of which nothing is kept. Appends a line to RESULTS (results.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from typing import TextIO

import duckdb
import rawduck
from faults_on_nvme import attach_new
from results import Results

ROWS_OF_A_LARGE_COMMIT = 300
COMMITS_MAX = 4  # that a writer has acknowledged when its end is decided
DELAY_MAX_S = 0.2
REPORT_EVERY = 20


@dataclass
class Ledger:
    """What the writers have said, and what was found."""

    acknowledged: int = -1  # the last transaction of which a writer has said that it is committed
    begun: int = -1  # the last one that was begun
    transactions: int = 0
    in_flight: int = 0  # writers that were killed amid a commit
    arrived: int = 0  # of those commits, which were there afterwards

    def compare(self, found: int) -> None:
        """FOUND: the last transaction that is there."""
        assert self.acknowledged <= found <= self.begun, (self, found)
        self.arrived += found > self.acknowledged
        self.acknowledged = self.begun = found

    def read(self, line: str) -> str:
        """A line that a writer has written. Returns its first word."""
        word, _, number = line.rstrip("\n").partition(" ")
        if word == "begun":
            self.begun = int(number)
        elif word == "done":
            self.acknowledged = int(number)
            self.transactions += 1
        elif word == "found":
            self.compare(int(number))
        else:
            raise AssertionError(line)
        return word


def kills(target: str, count: int, engine: str = "auto") -> None:
    """Each writer looks first at what the one before has left. Everything that was acknowledged is there, and
    what was not is there whole or not at all. Only the writers use the engine.
    """
    chance, ledger = random.Random(count), Ledger()
    with rawduck.connect() as connection:
        attach_new(connection, target, "x")
        connection.execute("CREATE TABLE x.t (number BIGINT, hash VARCHAR, filler VARCHAR)")
    for attempt in range(1, count + 1):
        kill_one(target, engine, ledger, chance)
        if attempt % REPORT_EVERY == 0 or attempt == count:
            print(f"guest: {attempt} writers killed: {ledger}", flush=True)
    assert ledger.in_flight > 0, "nobody was killed amid a commit, so this shows nothing"
    with rawduck.connect() as connection:
        ledger.compare(attach_and_look(connection, target))
        connection.execute("DETACH x")
        findings = connection.execute("FROM nvme_check(?) WHERE severity <> 'ok'", [target]).fetchall()
        assert findings == [], findings


def kill_one(target: str, engine: str, ledger: Ledger, chance: random.Random) -> None:
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        with contextlib.suppress(BaseException):
            write_for_ever(target, engine, tells)
        os._exit(1)
    os.close(tells)
    with os.fdopen(told) as lines:
        try:
            read_until_done(lines, ledger, chance.randint(1, COMMITS_MAX))
            time.sleep(chance.uniform(0, DELAY_MAX_S))
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        for line in lines:
            ledger.read(line)
    ledger.in_flight += ledger.begun > ledger.acknowledged


def read_until_done(lines: TextIO, ledger: Ledger, commits: int) -> None:
    while commits > 0:
        line = lines.readline()
        assert line, f"the writer failed before it was killed: {ledger}"
        commits -= ledger.read(line) == "done"


def write_for_ever(target: str, engine: str, tells: int) -> None:
    def tell(text: str) -> None:
        os.write(tells, f"{text}\n".encode())

    with rawduck.connect() as connection:
        connection.execute(f"SET checkpoint_threshold = '512 KiB'; SET nvme_engine = '{engine}'")
        try:
            number = attach_and_look(connection, target)
        except (AssertionError, duckdb.Error) as error:
            tell(f"wrong {error}")
            raise
        tell(f"found {number}")
        while True:
            number += 1
            tell(f"begun {number}")
            connection.execute(
                f"INSERT INTO x.t SELECT {number}, '{hash_of(number)}', repeat('x', 100) "
                f"FROM range({rows_of(number)})"
            )
            tell(f"done {number}")


def attach_and_look(connection: duckdb.DuckDBPyConnection, target: str) -> int:
    """The last transaction. They are all there, and each of them whole."""
    connection.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x")
    rows = connection.execute("SELECT number, hash, count(*) FROM x.t GROUP BY ALL ORDER BY ALL").fetchall()
    expected = [(number, hash_of(number), rows_of(number)) for number in range(len(rows))]
    assert rows == expected, next(pair for pair in zip(rows, expected, strict=True) if pair[0] != pair[1])
    return len(rows) - 1


def hash_of(number: int) -> str:
    return hashlib.md5(str(number).encode()).hexdigest()


def rows_of(number: int) -> int:
    return ROWS_OF_A_LARGE_COMMIT if number % 3 == 0 else 1


def main() -> None:
    results, target, count = Results(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    results.check(f"{target}: {count} writers are killed", lambda: kills(target, count))


if __name__ == "__main__":
    main()
