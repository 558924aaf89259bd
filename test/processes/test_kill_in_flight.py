"""`kill -9` while writes are on their way, and the next process at once.

Requests outlive the process that made them: in a ring, in a queue of the kernel, in the drive. They must not
land on what the next process writes. A throttle holds them back until it has begun; what is acknowledged is
noted.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from machine import MIB, Throttle, file_system, loop_over, new_image, throttle
from worker import ROW
from workers import Worker, workers

LIVES = int(os.environ.get("RAWDUCK_KILLS", "3"))
SEED = int(os.environ.get("RAWDUCK_KILL_SEED", "1"))
SLOW = 64 * 1024  # bytes in a second
#: How long the writes of a killed process are held back while the next one works.
HELD_SECONDS = 1.0
CAPACITY = 320 * MIB
#: Small commands: a write is then many, which wait in the ring and not in the process.
MAX_TRANSFERS = ("0", "64 KiB", "16 KiB")

PLACES = {
    "volume in a file": ("nvme", "file"),
    "volume on a block device": ("nvme", "loop"),
    "direct file": ("direct", "file"),
}


@dataclass
class Oracle:
    """What was begun, with its rows, and what was acknowledged."""

    draw: random.Random
    rows: dict[int, int] = field(default_factory=dict)
    acknowledged: int = -1

    def begin(self, count: int) -> tuple[int, list[int]]:
        """The next transactions: mostly small ones, which the WAL takes, and some that go past it."""
        first = self.acknowledged + 1
        self.rows = {n: rows for n, rows in self.rows.items() if n < first}
        for n in range(first, first + count):
            self.rows[n] = self.draw.choice((1, 10, 500, 2000, 6000, 25000))
        return first, [self.rows[n] for n in range(first, first + count)]

    def compare(self, found: list) -> None:
        """`found`: number, rows, rows that are not as they were written, of each transaction."""
        numbers = [n for n, _, _ in found]
        assert numbers in (
            list(range(self.acknowledged + 1)),
            list(range(self.acknowledged + 2)),  # committed, and killed before it said so
        ), f"{self.acknowledged + 1} were acknowledged"
        for n, rows, wrong in found:
            assert (rows, wrong) == (self.rows[n], 0), (
                f"transaction {n} has {rows} rows, {wrong} of them wrong"
            )
        self.acknowledged = len(numbers) - 1


class Life:
    """A process from its first ATTACH to its end."""

    def __init__(self, worker: Worker, scheme: str, target: str, engine: str) -> None:
        self._worker = worker
        self._scheme, self._target, self._engine = scheme, target, engine

    def prepare(self, max_transfer: str) -> None:
        """All that needs no target, so that the next process starts at once."""
        self._worker.run(
            f"SET nvme_engine = '{self._engine}'",
            f"SET nvme_queues = 'max_transfer={max_transfer}'",
            "SET force_compression = 'uncompressed'",
            "SET wal_autocheckpoint = '1MB'",
        )

    def check(self) -> None:
        if self._scheme == "nvme":
            findings = self._worker.run(
                "SELECT * FROM nvme_check('" + self._target + "') WHERE severity = 'error'"
            )
            assert findings == []

    def open(self) -> None:
        path = f"nvme://{self._target}/x.duckdb" if self._scheme == "nvme" else f"direct://{self._target}"
        self._worker.run(
            f"ATTACH '{path}' AS x (ROW_GROUP_SIZE 6144)",
            "CREATE TABLE IF NOT EXISTS x.t (n BIGINT, i BIGINT, s VARCHAR)",
        )

    def open_again(self) -> None:
        """Nothing is answered from memory any more."""
        self._worker.run("DETACH x")
        self.check()
        self.open()

    def compare(self, oracle: Oracle) -> None:
        oracle.compare(
            self._worker.run(
                f"SELECT n, count(*), count(*) FILTER (s <> {ROW}) FROM x.t GROUP BY n ORDER BY n"
            )
        )

    def commit(self, oracle: Oracle, count: int) -> None:
        first, sizes = oracle.begin(count)
        self._worker.must("commits", first=first, sizes=sizes)
        oracle.acknowledged = first + count - 1

    def commit_until_killed(self, oracle: Oracle, slow: Throttle) -> None:
        slow.join(self._worker.pid)
        first, sizes = oracle.begin(200)
        self._worker.acknowledged.clear()
        self._worker.send("commits", first=first, sizes=sizes, checkpoint_every=7)
        self._worker.answered(60)
        time.sleep(oracle.draw.uniform(0, 0.6))
        slow.set("write", SLOW)
        time.sleep(oracle.draw.uniform(0.02, 0.4))
        self._worker.kill()
        self._worker.drain_after_kill()
        oracle.acknowledged = max([first - 1, *self._worker.acknowledged])


def place(stack: ExitStack, where: str, folder: Path) -> tuple[str, str]:
    """A new target, and the device that can be throttled below it."""
    if where == "loop":
        device = stack.enter_context(loop_over(new_image(folder / "disk.img", CAPACITY)))
        return device, device
    mount_point, device = stack.enter_context(file_system(folder, CAPACITY + 256 * MIB))
    return str(mount_point / "x.target"), device


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        pytest.param(
            name,
            engine,
            marks=[pytest.mark.long] * (engine == "posix" and where != "file"),
            id=f"{name.replace(' ', '-')}-{engine}",
        )
        for engine in ("io_uring", "posix")
        for name, (_, where) in PLACES.items()
    ],
)
def test_the_next_process_starts_at_once(name, engine, tmp_path):
    scheme, where = PLACES[name]
    oracle = Oracle(random.Random(SEED))
    with ExitStack() as stack:
        target, device = place(stack, where, tmp_path)
        slow = stack.enter_context(throttle(device))
        lives = stack.enter_context(workers(LIVES + 1))
        all_lives = [Life(worker, scheme, target, engine) for worker in lives]
        for life in all_lives:
            life.prepare(oracle.draw.choice(MAX_TRANSFERS))
        if scheme == "nvme":
            size = f", size := '{CAPACITY}'" if where == "file" else ""
            lives[0].run(f"CALL nvme_format('{target}'{size})")
        for number, life in enumerate(all_lives):
            let_go = threading.Timer(HELD_SECONDS, slow.set, ("write", None))
            let_go.start()
            try:
                life.check()
                life.open()
                life.compare(oracle)
                life.commit(oracle, 6)
            finally:
                let_go.join()
            life.open_again()
            life.compare(oracle)
            if number < LIVES:
                life.commit_until_killed(oracle, slow)
