"""Snapshots among what a workload does: each holds what was committed when it was made."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import duckdb
from disk import Disk
from lanes import Lane, digest

#: Of a database, at a time.
MOST = 3


@dataclass
class Kept:
    """A snapshot: issued after `issued` events, acknowledged before event `acknowledged`, and so its
    removal. Of each lane it has at least `low` and at most `high` steps."""

    database: str
    name: str
    low: dict[str, int]
    high: dict[str, int] = field(default_factory=dict)
    issued: int = 0
    acknowledged: int | None = None
    drop_issued: int | None = None
    dropped: int | None = None

    @property
    def file(self) -> str:
        return f"{self.database}.duckdb@{self.name}"

    def must_be_there(self, events: int) -> bool:
        made = self.acknowledged is not None and self.acknowledged <= events
        return made and (self.drop_issued is None or self.drop_issued >= events)

    def may_be_there(self, events: int) -> bool:
        gone = self.dropped is not None and self.dropped <= events
        return self.issued < events and not gone


class Keeper:
    """Makes and drops the snapshots of one life."""

    def __init__(self, disk: Disk, kept: list[Kept]) -> None:
        self._disk = disk
        self._kept = kept

    def step(
        self, connection: duckdb.DuckDBPyConnection, database: str, steps: dict[str, int], draw: random.Random
    ) -> None:
        """`steps` of each lane were acknowledged, and none is under way."""
        there = [kept for kept in self._kept if kept.database == database and kept.drop_issued is None]
        if len(there) >= MOST:
            kept = draw.choice(there)
            kept.drop_issued = self._disk.events(connection)
            connection.execute("CALL nvme_drop_snapshot(?)", [self._disk.path(kept.file)])
            kept.dropped = self._disk.events(connection)
            return
        kept = Kept(database, f"k{draw.randrange(10**12)}", dict(steps), dict(steps))
        kept.issued = self._disk.events(connection)
        self._kept.append(kept)
        path = self._disk.path(f"{database}.duckdb")
        connection.execute("CALL nvme_snapshot(?, ?)", [path, kept.name])
        kept.acknowledged = self._disk.events(connection)


def problem_of(
    connection: duckdb.DuckDBPyConnection, disk: Disk, lanes: list[Lane], kept: Kept
) -> str | None:
    """What is wrong with a snapshot that is there; None when nothing is."""
    connection.execute(f"ATTACH '{disk.path(kept.file)}' AS kept (READ_ONLY)")
    try:
        for lane in lanes:
            if lane.database != kept.database or lane.file:
                continue
            found = digest(connection, replace(lane, database="kept"))
            allowed = range(kept.low[lane.name], kept.high[lane.name] + 1)
            if not any(lane.states[steps] == found for steps in allowed):
                return f"lane {lane.name} is not as after {allowed.start} to {allowed.stop - 1} steps"
    finally:
        connection.execute("DETACH kept")
    return None


def still_there(
    connection: duckdb.DuckDBPyConnection, disk: Disk, lanes: list[Lane], kept: list[Kept], events: int
) -> tuple[list[Kept], list[tuple[str, str]]]:
    """Of the snapshots of a life that was cut after so many events: those that the next one finds, and what
    is wrong (kind, detail)."""
    files = disk.files(connection)
    found, broken = [], []
    for one in kept:
        if one.file not in files:
            if one.must_be_there(events):
                broken.append(("lost", f"snapshot {one.file}"))
            continue
        if not one.may_be_there(events):
            broken.append(("resurrected", f"snapshot {one.file}"))
            continue
        try:
            problem = problem_of(connection, disk, lanes, one)
        except duckdb.Error as error:
            broken.append(("unopenable", f"{one.file}: {error}"))
            continue
        if problem:
            broken.append(("lost", f"{one.file}: {problem}"))
        # Before the first event of the next life.
        found.append(Kept(one.database, one.name, one.low, one.high, issued=-1, acknowledged=0))
    known = {one.file for one in kept}
    strange = sorted(
        file for file in files if "@" in file and not file.endswith(".wal") and file not in known
    )
    broken += [("resurrected", f"snapshot {file}") for file in strange if ".wal." not in file]
    return found, broken
