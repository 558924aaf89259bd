"""Commits until the power goes: `commit_on_nvme.py TARGET ACKNOWLEDGED`, inside the guest.

Makes a volume and a database on TARGET. Transaction i inserts row i and counts itself in another table; some
are larger, and sometimes there is a checkpoint. After each one its number is appended to ACKNOWLEDGED, which
lies outside the guest.
"""

from __future__ import annotations

import os
import sys
from itertools import count

import rawduck


def commit(connection, number: int) -> None:
    connection.execute("BEGIN")
    size = 400 if number % 10 == 0 else 1
    connection.execute(
        f"INSERT INTO p.t SELECT {number}, md5({number}::VARCHAR), repeat('x', 100) FROM range({size})"
    )
    connection.execute(f"UPDATE p.last SET number = {number}")
    connection.execute("COMMIT")
    if number % 25 == 24:
        connection.execute("CHECKPOINT p")


def main() -> None:
    target, acknowledged = sys.argv[1:]
    with rawduck.connect() as connection, open(acknowledged, "ab", buffering=0) as file:
        connection.execute("CALL nvme_format(?, force := true)", [target])
        connection.execute(f"ATTACH 'nvme://{target}/p.duckdb' AS p (BLOCK_SIZE 16384)")
        connection.execute("CREATE TABLE p.t (number BIGINT, hash VARCHAR, filler VARCHAR)")
        connection.execute("CREATE TABLE p.last AS SELECT -1::BIGINT AS number")
        for number in count():
            commit(connection, number)
            os.write(file.fileno(), b"%d\n" % number)


if __name__ == "__main__":
    main()
