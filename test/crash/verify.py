"""Opens what a power cut has left and compares it with what the oracle allows."""

from __future__ import annotations

from collections import Counter

import duckdb
from disk import Disk
from lanes import ABSENT, Lane, digest, export_digest
from workload import History, Life, Plan


class Broken(Exception):
    """A promise was broken. `kind`: lost, resurrected or unopenable."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


def check_volume(connection: duckdb.DuckDBPyConnection, disk: Disk) -> None:
    """Metadata verifies: nothing overlaps, no freed space is referenced. A torn superblock is a warning."""
    query = "SELECT what || ': ' || detail FROM nvme_check(?) WHERE severity = 'error'"
    damage = connection.execute(query, [disk.target]).fetchall()
    if damage:
        raise Broken("unopenable", f"nvme_check: {damage}")


def recover(connection: duckdb.DuckDBPyConnection, life: Life, disk: Disk, plan: Plan) -> dict[str, str]:
    """Attaches every database there is; returns the digest of each lane."""
    files = {
        name for (name,) in connection.execute("SELECT name FROM nvme_files(?)", [disk.target]).fetchall()
    }
    temporary = [name for name in files if "duckdb_temp" in name]
    if temporary:
        raise Broken("resurrected", f"temporary files after a power cut: {temporary}")
    found = {}
    for database in sorted({lane.database for lane in plan.lanes if f"{lane.database}.duckdb" in files}):
        life.history.created[database] = 0
        try:
            life.attach(database)
        except duckdb.Error as error:
            raise Broken("unopenable", f"{database}.duckdb: {error}") from error
    for lane in plan.lanes:
        present = (lane.file or f"{lane.database}.duckdb") in files
        found[lane.name] = state_of(connection, disk, lane) if present else ABSENT
    return found


def state_of(connection: duckdb.DuckDBPyConnection, disk: Disk, lane: Lane) -> str:
    try:
        if lane.is_export:
            return export_digest(connection, f"FROM '{disk.path(lane.file)}'")
        return digest(connection, lane)
    except duckdb.Error as error:
        raise Broken("unopenable", f"{lane.name}: {error}") from error


def match(lane: Lane, found: str, history: History, events: int) -> int:
    """How many steps of the lane are there. Raises Broken when the history does not allow that number."""
    allowed = history.allowed(lane, events)
    if found == ABSENT and not lane.file and events < history.created[lane.database]:
        found = lane.states[0]
    for steps in reversed(allowed):
        if lane.states[steps] == found:
            return steps
    known = [steps for steps, state in enumerate(lane.states) if state == found]
    detail = f"lane {lane.name}: expected {allowed.start} to {allowed.stop - 1} steps, found "
    if known:
        kind = "resurrected" if min(known) > allowed.start else "lost"
        raise Broken(kind, f"{detail}{known}")
    raise Broken("lost", f"{detail}a state that never was: {found}; {lane.states[allowed.start]} was")


def count_faults(counts: Counter, report: Counter) -> None:
    counts.update(report)
    counts["power cuts"] += 1
