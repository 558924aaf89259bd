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
    files = disk.files(connection)
    temporary = [name for name in files if "duckdb_temp" in name]
    if temporary:
        raise Broken("resurrected", f"temporary files after a power cut: {temporary}")
    found = {}
    for database in sorted({lane.database for lane in plan.lanes if f"{lane.database}.duckdb" in files}):
        life.history.created[database] = 0
        try:
            overlapped = f"{database}.duckdb.wal.checkpoint"
            if overlapped in files:
                life.open_once(database)
                if overlapped in disk.files(connection):
                    raise Broken("resurrected", f"{overlapped}, which an earlier start has merged")
            life.attach(database)
        except duckdb.Error as error:
            raise Broken("unopenable", f"{database}.duckdb: {error}") from error
    for lane in plan.lanes:
        present = (lane.file or f"{lane.database}.duckdb") in files
        if present and not lane.is_export:
            check_indexes(connection, lane)
        found[lane.name] = state_of(connection, disk, lane) if present else ABSENT
    return found


def check_indexes(connection: duckdb.DuckDBPyConnection, lane: Lane) -> None:
    """Rows that a scan finds are found through the index too. DuckDB then also takes over what recovery has
    put aside for the index; without that the next automatic checkpoint forgets it: test_duckdb_replay.py."""
    indexed = connection.execute(
        "SELECT DISTINCT table_name FROM ("
        "SELECT database_name, table_name FROM duckdb_indexes() UNION ALL "
        "SELECT database_name, table_name FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY') "
        "WHERE database_name = ? AND starts_with(table_name, ?)",
        [lane.database, f"{lane.name}_"],
    ).fetchall()
    for (name,) in indexed:
        try:
            check_index(connection, f"{lane.database}.{name}")
        except duckdb.Error as error:
            raise Broken("unopenable", f"{name}: {error}") from error


def check_index(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Asks for some of the keys in `k`, the last ten among them. Every second at a time: DuckDB makes a range
    of neighbours, asks no index for a range, and omits a condition that its statistics call always true."""
    counts = f"SELECT k, count(*) FROM {table}"
    scanned = connection.execute(f"{counts} GROUP BY k ORDER BY k").fetchall()
    some = sorted({*scanned[:: max(len(scanned) // 20, 1)], *scanned[-10:]}) or [(0, 0)]
    connection.execute("SET disabled_optimizers = 'statistics_propagation'")
    for asked in (some[::2], some[1::2]):
        if keys := ", ".join(str(key) for key, _ in asked):
            through_index = connection.execute(f"{counts} WHERE k IN ({keys}) GROUP BY k").fetchall()
            if missing := set(asked) - set(through_index) - {(0, 0)}:
                raise Broken("lost", f"{table}: the index does not find these keys so often: {missing}")
    connection.execute("RESET disabled_optimizers")


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
    known = known_states(lane, found)
    detail = f"lane {lane.name}: expected {allowed.start} to {allowed.stop - 1} steps, found "
    if known:
        kind = "resurrected" if min(known) > allowed.start else "lost"
        raise Broken(kind, f"{detail}{known}")
    raise Broken("lost", f"{detail}a state that never was: {found}; {lane.states[allowed.start]} was")


def known_states(lane: Lane, found: str) -> list[int]:
    """After how many steps the lane was like that."""
    return [steps for steps, state in enumerate(lane.states) if state == found]


def count_faults(counts: Counter, report: Counter) -> None:
    counts.update(report)
    counts["power cuts"] += 1
