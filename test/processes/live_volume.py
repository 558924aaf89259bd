"""A volume that somebody writes to.

Transaction n adds a row to a table and replaces all rows of another: what is seen is the state after one
commit, whichever. The volume is small, so space that nobody keeps is written to again soon.
"""

from __future__ import annotations

import os
import socket

from workers import Worker

MIB = 1024**2
VOLUME_BYTES = 24 * MIB
ROWS = 10000
#: After its end, a reader's snapshot goes with the writer's next look.
LEAVING_SECONDS = 15
TEXT = "md5(n || ':' || i)"
STATE = f"""SELECT (SELECT count(*) FROM {{0}}.log), (SELECT max(n) FROM {{0}}.log),
    (SELECT count(*) FROM {{0}}.t WHERE s = {TEXT}), (SELECT min(n) FROM {{0}}.t),
    (SELECT max(n) FROM {{0}}.t)"""
ATTACH_LATEST = "ATTACH 'nvme://{}/x.duckdb@latest' AS latest (READ_ONLY)"
ROWS_OF = f"SELECT n, i, {TEXT} AS s FROM (SELECT {{0}} AS n, range AS i FROM range({ROWS}))"


def attach(worker: Worker, volume: str) -> None:
    worker.run(f"ATTACH 'nvme://{volume}/x.duckdb' AS x")


def attach_latest(worker: Worker, volume: str) -> None:
    worker.run(ATTACH_LATEST.format(volume))


def transaction(n: int) -> str:
    return (
        f"BEGIN; INSERT INTO x.log VALUES ({n}); DELETE FROM x.t; INSERT INTO x.t {ROWS_OF.format(n)}; COMMIT"
    )


def commit(worker: Worker, n: int) -> None:
    worker.run(
        transaction(n),
        *(["CHECKPOINT x"] if n % 5 == 0 else []),
    )


def state(worker: Worker, name: str = "latest") -> int:
    """The number of the last transaction that it sees, whole."""
    count, last, rows, least, most = worker.run(STATE.format(name))[0]
    assert (count, rows, least, most) == (last + 1, ROWS, last, last)
    return last


def identity_of(volume: str) -> str:
    status = os.stat(volume)
    if status.st_rdev:
        return f"block:{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return f"file:{status.st_dev}:{status.st_ino}"


def connection(volume: str) -> socket.socket:
    """To the process that has it open for writing."""
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.connect("\0rawduck/" + identity_of(volume))
    return asking
