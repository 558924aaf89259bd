"""Runs lanes on a volume and notes, for every step, between which events it was acknowledged."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace

import duckdb
import rawduck
from disk import Disk, Geometry
from kept import Keeper, Kept
from lanes import Lane, Step, compute_states, export_lane, file_lane, table_lane

CONFIG = {"threads": 1, "python_enable_replacements": False}


@dataclass(frozen=True)
class Plan:
    """What one workload is made of; all of it follows from the seed."""

    seed: str
    geometry: Geometry
    lanes: list[Lane]
    attach_options: dict[str, str]
    wal_autocheckpoint: str
    threaded: bool
    spill: bool


@dataclass
class Mark:
    """A step of a lane: issued after `issued` events, acknowledged before event `acknowledged`."""

    step: int
    issued: int
    acknowledged: int | None = None


@dataclass
class History:
    """What the oracle knows of one life of a device: from which states the lanes started, their marks, after
    how many events each database was there, and the sequence number of the superblock when the life began."""

    start: dict[str, int] = field(default_factory=dict)
    created: dict[str, int] = field(default_factory=dict)
    marks: dict[str, list[Mark]] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)
    sequence: int = 1

    def allowed(self, lane: Lane, events: int) -> range:
        """How many steps of a lane may be found after a power cut: all acknowledged, at most all issued."""
        low = high = self.start[lane.name]
        for mark in self.marks[lane.name]:
            if mark.acknowledged is not None and mark.acknowledged <= events:
                low = mark.step + 1
            if mark.issued < events:
                high = mark.step + 1
        return range(low, max(low, high) + 1)


@dataclass(frozen=True)
class Bias:
    """What is not left to chance. `torn`: LBAs of 512 bytes, written one by one, behind a write cache."""

    torn: bool = False
    wal_autocheckpoint: str | None = None


NO_BIAS = Bias()


def draw_plan(seed: str, steps: int, threaded: bool, bias: Bias = NO_BIAS) -> Plan:
    draw = random.Random(seed)
    lba_size = draw.choice((512, 4096))
    geometry = Geometry(
        lba_size=lba_size,
        atomic_write=draw.choice((lba_size, 4096, 16384)),
        write_cache=draw.random() < 0.9,
        fua=draw.random() < 0.5,
        latency_us=300 if threaded else 0,
        seed=draw.randrange(2**32),
    )
    databases = ["a", "b"]
    options = {}
    for database in [*databases, "f"]:
        block_size, row_group_size = draw.choice(((16384, 2048), (16384, 2048), (262144, 122880)))
        options[database] = f"(BLOCK_SIZE {block_size}, ROW_GROUP_SIZE {row_group_size})"
    lanes = [table_lane(draw, database, f"l{i}", steps, 4000) for i, database in enumerate(databases * 2)]
    lanes += [file_lane(draw, "f", steps // 2), export_lane(draw, "x", steps // 4)]
    compute_states(lanes)
    autocheckpoint = draw.choice(("20KB", "200KB", "1GB"))
    if bias.torn:
        geometry = replace(geometry, lba_size=512, atomic_write=512, write_cache=True)
    autocheckpoint = bias.wal_autocheckpoint or autocheckpoint
    return Plan(seed, geometry, lanes, options, autocheckpoint, threaded, draw.random() < 0.3)


def connect(plan: Plan, **config) -> duckdb.DuckDBPyConnection:
    connection = rawduck.connect(config={**CONFIG, **config})
    connection.execute(f"SET GLOBAL wal_autocheckpoint = '{plan.wal_autocheckpoint}'")
    if not plan.threaded:  # the thread that does it goes by the clock, and the seed alone is to decide
        connection.execute("SET GLOBAL nvme_deallocate = 'off'")
    return connection


class Life:
    """Runs steps of the lanes on one device, through one DuckDB instance."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, disk: Disk, plan: Plan, start: dict[str, int]
    ) -> None:
        self.history = History(dict(start), {}, {lane.name: [] for lane in plan.lanes})
        self._connection = connection
        self._disk = disk
        self._plan = plan

    def attach(self, database: str) -> None:
        path = self._disk.path(f"{database}.duckdb")
        self._connection.execute(f"ATTACH '{path}' AS {database} {self._plan.attach_options[database]}")
        self.history.created.setdefault(database, self._disk.events(self._connection))

    def open_once(self, database: str) -> None:
        """In an instance of its own, closed at once. When a checkpoint that commits overlapped was cut short,
        DuckDB's first start applies the log to the indexes wrongly, the next one does not:
        test_duckdb_replay.py."""
        with self._connect() as connection:
            path = self._disk.path(f"{database}.duckdb")
            connection.execute(f"ATTACH '{path}' AS {database} {self._plan.attach_options[database]}")

    def _connect(self) -> duckdb.DuckDBPyConnection:
        return connect(self._plan)

    def detach(self) -> None:
        names = "SELECT database_name FROM duckdb_databases() WHERE path IS NOT NULL"
        for (database,) in self._connection.execute(names).fetchall():
            self._connection.execute(f"DETACH {database}")

    def interleaved(self, counts: dict[str, int], draw: random.Random) -> None:
        """That many steps of each lane, a statement at a time in turns, on one thread: it replays exactly."""
        runners = [self.run(lane, counts[lane.name], self._connection.cursor()) for lane in self._plan.lanes]
        while runners:
            runner = draw.choice(runners)
            if next(runner, "done") == "done":
                runners.remove(runner)
            elif draw.random() < 0.03:
                self._checkpoint(draw.choice("ab"))
            elif draw.random() < 0.03:
                self._keep(draw.choice("ab"), draw)
            elif draw.random() < 0.02:
                self.enlarge(draw, self._connection)
            self.between_statements()

    def _keep(self, database: str, draw: random.Random) -> None:
        """Makes or drops a snapshot. What is under way is not committed."""
        marks = self.history.marks
        steps = {
            lane.name: self.history.start[lane.name] + len(marks[lane.name]) for lane in self._plan.lanes
        }
        Keeper(self._disk, self.history.kept).step(self._connection, database, steps, draw)

    def enlarge(self, draw: random.Random, connection: duckdb.DuckDBPyConnection) -> None:
        """Makes the device larger, and mostly the volume."""
        self._disk.enlarge(connection, draw.choice((1, 3, 40)) * 2**20, draw.random() < 0.8)

    def between_statements(self) -> None:
        """For whoever wants to look at what is there now."""

    def threaded(self, counts: dict[str, int], draw: random.Random) -> None:
        """The same with a thread for each lane, and one that checkpoints meanwhile."""
        failures: list[BaseException] = []
        stop = threading.Event()

        def work(lane: Lane) -> None:
            try:
                for _ in self.run(lane, counts[lane.name], self._connection.cursor()):
                    pass
            except BaseException as error:
                failures.append(error)

        def checkpoint(database: str) -> None:
            cursor = self._connection.cursor()
            while not stop.wait(0.002):
                self._checkpoint(database, cursor)

        workers = [threading.Thread(target=work, args=(lane,)) for lane in self._plan.lanes]
        helpers = [threading.Thread(target=checkpoint, args=(database,)) for database in "ab"]

        def enlarge() -> None:
            cursor = self._connection.cursor()
            while not stop.wait(0.02):
                self.enlarge(draw, cursor)

        helpers.append(threading.Thread(target=enlarge))
        if self._plan.spill:
            helpers.append(threading.Thread(target=spill, args=(self._connection.cursor(), stop)))
        for thread in workers + helpers:
            thread.start()
        for thread in workers:
            thread.join()
        stop.set()
        for thread in helpers:
            thread.join()
        if failures:
            raise failures[0]

    def run(self, lane: Lane, count: int, cursor: duckdb.DuckDBPyConnection):
        """Carries out the next steps of a lane; yields between statements."""
        first = self.history.start[lane.name] + len(self.history.marks[lane.name])
        for number in range(first, min(first + count, len(lane.steps))):
            step = lane.steps[number]
            if step.kind in ("transaction", "rollback"):
                cursor.execute("BEGIN")
                for statement in step.statements:
                    cursor.execute(statement)
                    yield
                yield
            mark = Mark(number, self._disk.events(cursor))
            self.history.marks[lane.name].append(mark)
            self._finish(cursor, lane, step)
            mark.acknowledged = self._disk.events(cursor)
            yield

    def _finish(self, cursor: duckdb.DuckDBPyConnection, lane: Lane, step: Step) -> None:
        """The statement whose success is the acknowledgement."""
        if step.kind == "create":
            self.attach(lane.database)
        elif step.kind == "remove":
            cursor.execute(f"DETACH {lane.database}")
            self._remove(cursor, lane.file)
        elif step.kind == "export":
            path = self._disk.path(lane.file)
            cursor.execute(f"COPY ({step.statements[0]}) TO '{path}' (FORMAT parquet, USE_TMP_FILE true)")
        else:
            cursor.execute("COMMIT" if step.kind == "transaction" else "ROLLBACK")

    def _remove(self, cursor: duckdb.DuckDBPyConnection, file: str) -> None:
        cursor.execute("CALL nvme_remove(?)", [self._disk.path(file)])

    def _checkpoint(self, database: str, cursor: duckdb.DuckDBPyConnection | None = None) -> None:
        with suppress(duckdb.TransactionException):  # it refuses while others write; the next one comes
            (cursor or self._connection).execute(f"CHECKPOINT {database}")


def spill(cursor: duckdb.DuckDBPyConnection, stop: threading.Event) -> None:
    """Sorts more than fits into memory, so that temporary files come and go."""
    while not stop.is_set():
        cursor.execute(
            "SELECT count(*) FROM (SELECT md5(r::VARCHAR) AS m, repeat('x', 100) "
            "FROM range(200000) g(r) ORDER BY m)"
        )


def record(plan: Plan, name: str, steps: int) -> tuple[Disk, History]:
    """Runs a workload from an empty volume on; returns the device, which can then be cut anywhere."""
    with connect(plan) as connection:
        if plan.spill:  # to the device, not only to memory
            connection.execute("SET GLOBAL nvme_spill_buffer = '1 MiB'")
        disk = Disk.make(connection, name, plan.geometry)
        if plan.spill:
            connection.execute(f"SET GLOBAL temp_directory = '{disk.path('tmp')}'")
            connection.execute("SET GLOBAL memory_limit = '40MB'")
        life = Life(connection, disk, plan, {lane.name: 0 for lane in plan.lanes})
        first_life(life, plan, steps)
    return disk, life.history


def first_life(life: Life, plan: Plan, steps: int) -> None:
    """From nothing on, that many steps of each lane."""
    for database in "ab":
        life.attach(database)
    counts = {lane.name: steps for lane in plan.lanes}
    draw = random.Random(f"{plan.seed} schedule")
    (life.threaded if plan.threaded else life.interleaved)(counts, draw)
    life.detach()
