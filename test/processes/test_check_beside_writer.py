"""nvme_check on a volume that another process, or this one, writes to."""

from __future__ import annotations

import os
import threading

import rawduck
from live_volume import attach, commit
from workers import workers

SUPERBLOCK_BYTES = 4096
_NOT_OK = (
    "SELECT severity, what, detail, repair FROM nvme_check('{}') WHERE severity <> 'ok' OR repair IS NOT NULL"
)
_IS_LIVE = "SELECT count(*) FROM nvme_check('{}') WHERE detail LIKE 'it is open for writing%'"


def test_a_volume_that_is_written_to_is_sound(volume):
    """Small commits, which the log takes, and many checkpoints of the metadata."""
    with workers(2) as (writer, other):
        attach(writer, volume)
        other.run("SELECT 1")
        statements = [
            f"INSERT INTO x.log SELECT {n} WHERE false; INSERT INTO x.t VALUES ({n}, {n}, 'x'); CHECKPOINT x"
            for n in range(60)
        ]
        for _ in range(5):
            writer.send("run", statements=statements)
            while not writer.answered():
                assert other.run(_NOT_OK.format(volume)) == []
                assert other.run(_IS_LIVE.format(volume)) == [[1]]
            assert writer.receive().ok
        writer.run("DETACH x")
        assert other.run(_IS_LIVE.format(volume)) == [[0]]


def test_in_the_process_that_writes(volume):
    with rawduck.connect() as con:
        con.execute(f"ATTACH 'nvme://{volume}/x.duckdb' AS x")
        stop = threading.Event()

        def write() -> None:
            cursor = con.cursor()
            while not stop.is_set():
                cursor.execute("INSERT INTO x.log VALUES (1)")

        writing = threading.Thread(target=write)
        writing.start()
        try:
            for _ in range(50):
                assert con.execute(_NOT_OK.format(volume)).fetchall() == []
        finally:
            stop.set()
            writing.join()
        assert con.execute(_IS_LIVE.format(volume)).fetchall() == [(1,)]


def test_damage_is_found_and_not_repaired(volume):
    with workers(2) as (writer, other):
        attach(writer, volume)
        commit(writer, 1)
        while writer.run(f"SELECT checkpoint_pending FROM nvme_info('{volume}')") != [[False]]:
            pass  # it would write the superblock anew
        with open(volume, "r+b") as target:
            target.write(os.urandom(SUPERBLOCK_BYTES))
        ((severity, what, _, repair),) = other.run(_NOT_OK.format(volume))
        assert (severity, what, repair) == ("warning", "superblock 0", None)
        answer = other.ask("run", statements=[f"FROM nvme_check('{volume}', repair := true)"])
        assert "cannot lock it" in answer.error
        writer.run("CHECKPOINT x", "DETACH x")
        other.run(f"FROM nvme_check('{volume}', repair := true)")
        assert other.run(_NOT_OK.format(volume)) == []
