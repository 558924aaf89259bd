"""The process that works on a volume and is killed: carries out what it reads, a line for each thing.

A request is a list of lanes, each a list of statements that a connection of its own executes until one fails.
For each lane one line is printed when it has ended: only what was printed counts as acknowledged.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress

import duckdb
import rawduck

_printing = threading.Lock()


def carry_out(connection, lane: int, statements: list[str]) -> None:
    answer = {"lane": lane, "rows": []}
    try:
        for statement in statements:
            answer["rows"] = connection.execute(statement).fetchall()
    except duckdb.Error as error:
        answer["error"] = f"{type(error).__name__}: {error}"
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")  # where it has begun a transaction
    with _printing:
        print(json.dumps(answer, default=str), flush=True)


def main() -> None:
    with rawduck.connect(config=json.loads(sys.argv[1])) as connection:
        for line in sys.stdin:
            lanes = json.loads(line)
            threads = [
                threading.Thread(target=carry_out, args=(connection.cursor(), number, statements))
                for number, statements in enumerate(lanes)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


if __name__ == "__main__":
    main()
