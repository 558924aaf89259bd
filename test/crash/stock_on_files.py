"""Whose loss is it? `stock_on_files.py 1.5.0` looks into what `make test-crash SEED=1` reports of seed 1.5.0.

Finds the first cut of that workload that ends badly, then carries out the same lives with stock DuckDB on
ordinary files, without rawduck: the first from nothing, each later one from the files that were on the volume
when it began. After each statement the files are copied as they are, which is what a killed process leaves;
another stock DuckDB opens the copy and is compared with the oracle. What differs here is DuckDB's, not the
volume's. Exits with 1 when something differs."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
from campaign import CUTS_PER_WORKLOAD, STEPS, Campaign, next_life
from disk import Disk
from lanes import ABSENT
from verify import Broken, recover
from workload import CONFIG, History, Life, Plan, first_life


class Folder:
    """Takes the place of a simulated device: files lie in a folder, the clock ticks when it is looked at."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ticks = folder, 0

    def path(self, file: str) -> str:
        return str(self._folder / file)

    def files(self, _connection: duckdb.DuckDBPyConnection) -> set[str]:
        return set(os.listdir(self._folder))

    def events(self, _connection: duckdb.DuckDBPyConnection) -> int:
        self._ticks += 1
        return self._ticks


class FileLife(Life):
    """A life on ordinary files, which notes what a process that is killed between statements would lose."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, live: Path, plan: Plan, start: dict[str, int]):
        super().__init__(connection, Folder(live), plan, start)
        self._live = live
        self.lost: dict[str, str] = {}

    def _remove(self, _cursor: duckdb.DuckDBPyConnection, file: str) -> None:
        os.remove(self._disk.path(file))

    def _connect(self) -> duckdb.DuckDBPyConnection:
        return stock(self._plan)

    def between_statements(self) -> None:
        copy = self._live.parent / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._live, copy)
        with stock(self._plan) as connection:
            try:
                other = FileLife(connection, copy, self._plan, {})
                found = recover(connection, other, Folder(copy), self._plan)
            except Broken as broken:
                self.lost.setdefault(str(broken), "")
                return
        for lane in self._plan.lanes:
            marks = self.history.marks[lane.name]
            steps = self.history.start[lane.name] + sum(mark.acknowledged is not None for mark in marks)
            if found[lane.name] not in (lane.states[steps], ABSENT):
                key = f"lane {lane.name} after {steps} steps"
                self.lost.setdefault(key, f"found {found[lane.name]}, expected {lane.states[steps]}")


@dataclass
class Kept:
    """How a life began."""

    files: Path
    draw: tuple
    history: History
    at: int


class Keeping(Campaign):
    """Keeps the files that each life of the latest chain of cuts began with."""

    def __init__(self, seed: str, folder: Path) -> None:
        super().__init__(seed, threaded=False)
        self._folder = folder
        self.lives: list[Kept] = []

    def _cut_and_again(self, disk: Disk, history: History, at: int, number: int) -> None:
        self.lives = []
        super()._cut_and_again(disk, history, at, number)

    def _relive(self, disk: Disk, history: History, at: int, draw: random.Random) -> History:
        folder = self._folder / str(len(self.lives))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        # Of a copy, because the first look at a volume that was cut changes it.
        copy, _ = disk.cut(self._connection, disk.events(self._connection), 0, "kept")
        for name in copy.files(self._connection):
            query = "SELECT content FROM read_blob(?)"
            content = self._connection.execute(query, [copy.path(name)]).fetchone()[0]
            (folder / name).write_bytes(content)
        self.lives.append(Kept(folder, draw.getstate(), history, at))
        return super()._relive(disk, history, at, draw)


def stock(plan: Plan) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config=CONFIG)
    connection.execute(f"SET GLOBAL wal_autocheckpoint = '{plan.wal_autocheckpoint}'")
    return connection


def on_files(plan: Plan, live: Path, start: dict[str, int], live_it: Callable) -> dict[str, str]:
    """What a life loses that stock DuckDB leads in this folder."""
    with stock(plan) as connection:
        life = FileLife(connection, live, plan, start)
        try:
            live_it(connection, life)
        except Broken as broken:
            life.lost.setdefault(str(broken), "")
    return life.lost


def compare(seed: str, folder: Path) -> int:
    """Prints what was lost on the volume, and what in which life on ordinary files; how much of that."""
    with Keeping(seed, folder) as campaign:
        result = campaign.run(CUTS_PER_WORKLOAD, stop=True)
        plan, lives = campaign.plan, campaign.lives
    if not result.failures:
        print(f"no cut of {result.counts['power cuts']} ended badly")
        return 0
    print(result.failures[0])
    (folder / "live").mkdir()
    start = {lane.name: 0 for lane in plan.lanes}
    losses = [on_files(plan, folder / "live", start, lambda _, life: first_life(life, plan, STEPS))]
    for kept in lives:
        draw = random.Random()
        draw.setstate(kept.draw)
        disk = Folder(kept.files)
        again = (disk, plan, kept.history, kept.at, draw)
        losses.append(
            on_files(plan, kept.files, {}, lambda connection, life, a=again: next_life(connection, life, *a))
        )
    for number, lost in enumerate(losses):
        print(f"life {number} with stock DuckDB on ordinary files: {len(lost)} lost")
        for what, detail in lost.items():
            print(f"  {what}: {detail}")
    return sum(map(len, losses))


def main() -> int:
    if len(sys.argv) != 2:
        print(
            "usage: stock_on_files.py SEED, that of a workload without threads, such as 1.5.0",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory() as folder:
        return 1 if compare(sys.argv[1], Path(folder)) else 0


if __name__ == "__main__":
    sys.exit(main())
