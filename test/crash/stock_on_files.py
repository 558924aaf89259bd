"""What stock DuckDB makes of a workload on ordinary files when it is killed: `stock_on_files.py 1.5.1`.

Without rawduck. After each statement the files are copied as they are, which is what a killed process leaves,
opened by another stock DuckDB and compared with the oracle. What differs here is DuckDB's, not the volume's:
test/crash calls it lost all the same. Exits with 1 when something differs."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import duckdb
from campaign import LIVES, STEPS
from lanes import Lane, Step, digest
from workload import CONFIG, Life, Plan, draw_plan


class Folder:
    """Takes the place of a simulated device: files lie in a folder, the clock ticks when it is looked at."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ticks = folder, 0

    def path(self, file: str) -> str:
        return str(self._folder / file)

    def events(self, _connection: duckdb.DuckDBPyConnection) -> int:
        self._ticks += 1
        return self._ticks


class FileLife(Life):
    def _finish(self, cursor: duckdb.DuckDBPyConnection, lane: Lane, step: Step) -> None:
        if step.kind == "remove":
            cursor.execute(f"DETACH {lane.database}")
            os.remove(self._disk.path(lane.file))
        else:
            super()._finish(cursor, lane, step)


def stock(plan: Plan) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config=CONFIG)
    connection.execute(f"SET GLOBAL wal_autocheckpoint = '{plan.wal_autocheckpoint}'")
    return connection


def differences(plan: Plan, life: Life, copy: Path) -> dict[tuple[str, int], str]:
    """By lane and acknowledged steps: what a DuckDB that opens the copy finds instead."""
    found = {}
    with stock(plan) as connection:
        for database in "ab":
            path = copy / f"{database}.duckdb"
            connection.execute(f"ATTACH '{path}' AS {database} {plan.attach_options[database]}")
        for lane in (lane for lane in plan.lanes if lane.database in ("a", "b") and not lane.is_export):
            steps = sum(mark.acknowledged is not None for mark in life.history.marks[lane.name])
            state = digest(connection, lane)
            if state != lane.states[steps]:
                found[lane.name, steps] = f"found {state}, expected {lane.states[steps]}"
    return found


def run(seed: str, folder: Path) -> dict[tuple[str, int], str]:
    plan = draw_plan(seed, STEPS + 2 * LIVES, threaded=False)
    live, copy = folder / "live", folder / "copy"
    live.mkdir()
    found: dict[tuple[str, int], str] = {}
    with stock(plan) as connection:
        life = FileLife(connection, Folder(live), plan, {lane.name: 0 for lane in plan.lanes})
        for database in "ab":
            life.attach(database)
        draw = random.Random(f"{plan.seed} schedule")
        runners = [life.run(lane, STEPS, connection.cursor()) for lane in plan.lanes]
        while runners:
            runner = draw.choice(runners)
            if next(runner, "done") == "done":
                runners.remove(runner)
            elif draw.random() < 0.03:
                life._checkpoint(draw.choice("ab"))
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(live, copy)
            found = {**differences(plan, life, copy), **found}
    return found


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: stock_on_files.py SEED, that of a workload, such as 1.5.1", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        found = run(sys.argv[1], Path(folder))
    for (lane, steps), detail in sorted(found.items()):
        print(f"lane {lane} after {steps} steps: {detail}")
    print(f"{len(found)} states that stock DuckDB on ordinary files does not bring back")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
