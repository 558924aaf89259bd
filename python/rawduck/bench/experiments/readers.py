"""`rawduck bench readers`: what readers and a writer of one database cost each other, and snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rawduck.bench.core import modes
from rawduck.bench.core.case import CPU, READ, WALL, Case, Measurement, Metric, Mode
from rawduck.bench.core.experiment import Bar, Experiment, at_least, at_most
from rawduck.bench.core.results import Results
from rawduck.measuring import companion
from rawduck.measuring.companion import Companion
from rawduck.measuring.measure import Result, Session, Stopwatch

_NAME = "bench-readers.duckdb"
_QUERY = "SELECT sum(l_orderkey), sum(l_partkey), sum(l_suppkey) FROM lineitem"
_COMMITS, _LEAST_COMMITS = 2000, 50
_SNAPSHOTS = 50
_ALONE = "alone"
#: What happens beside, how often in seconds.
_INTERVALS = {companion.COMMIT: 0.01, companion.READ: 0.1, companion.SNAPSHOT: 0.1}

_MEDIAN = Metric("commit_median_s", "commit, median ms", 1e-3)
_P99 = Metric("commit_p99_s", "commit, p99 ms", 1e-3)
_SNAPSHOT = Metric("snapshot_median_s", "snapshot, median ms", 1e-3)
_BESIDE = Metric("beside", "times beside", 1, ",.0f")


@dataclass
class BesideTask(Session):
    """A cold scan of lineitem as @latest, with a companion or alone."""

    kind: str = ""
    interval: float = 0.0
    written: str = ""

    def perform(self) -> Result:
        beside = Companion(self.kind, self.written, self.interval)
        with beside, self.open() as connection, Stopwatch() as watch:
            rows = connection.execute(_QUERY).fetchall()
        return watch.result(rows=rows, values={_BESIDE.name: float(beside.done)})


@dataclass
class LatencyTask(Session):
    """Inserts of one row, each a transaction, and how long each took."""

    kind: str = ""
    interval: float = 0.0
    commits: int = 0

    def perform(self) -> Result:
        with self.open() as connection:
            connection.execute("CREATE TABLE events (number BIGINT, text VARCHAR)")
            with Companion(self.kind, self.database, self.interval) as beside, Stopwatch() as watch:
                took = sorted(
                    _seconds(
                        lambda n=n: connection.execute("INSERT INTO events VALUES (?, 'a small row')", [n])
                    )
                    for n in range(self.commits)
                )
            rows = connection.execute("SELECT count(*), sum(number) FROM events").fetchall()
        values = {
            _MEDIAN.name: took[len(took) // 2],
            _P99.name: took[len(took) * 99 // 100],
            _BESIDE.name: float(beside.done),
        }
        return watch.result(rows=rows, values=values)


@dataclass
class SnapshotTask(Session):
    """Snapshots of a database, each dropped after it."""

    snapshots: int = 0

    def perform(self) -> Result:
        took = []
        with self.open() as connection, Stopwatch() as watch:
            for _ in range(self.snapshots):
                make = "SELECT * FROM nvme_snapshot(?, 'rawduck-bench')"
                took.append(_seconds(lambda m=make: connection.execute(m, [self.database]).fetchall()))
                drop = "SELECT * FROM nvme_drop_snapshot(?)"
                connection.execute(drop, [f"{self.database}@rawduck-bench"]).fetchall()
        return watch.result(values={_SNAPSHOT.name: sorted(took)[len(took) // 2]})


class Readers(Experiment):
    name = "readers"
    title = "Readers beside the writer"
    text = (
        "What processes that share a database on a volume cost each other. Scans are cold, of lineitem as "
        "@latest: alone, and while another process commits a row to the same database every 10 ms. Commits "
        "are rows that one connection inserts, each durable when it returns: alone, while another process "
        "attaches and detaches @latest ten times a second, and while one makes and drops a snapshot as often."
    )
    scale = 5.0
    metrics = (WALL, CPU, READ, _MEDIAN, _P99, _SNAPSHOT, _BESIDE)

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        self._database = self.bench.database(scale, "lineitem")
        scans = [
            modes.make(_ALONE, "nobody writes", modes.ON_VOLUME),
            modes.make(companion.COMMIT, "another process commits", modes.ON_VOLUME),
        ]
        yield Case(
            "scan",
            f"Cold scan of @latest, three integer columns, scale factor {scale:g}",
            {"scale": scale, "query": _QUERY, "threads": self.bench.options.threads, "beside": _INTERVALS},
            modes.with_config(scans, threads=self.bench.options.threads),
            self._scan,
            self._prepare,
        )
        commits = max(_LEAST_COMMITS, int(_COMMITS * min(1.0, scale)))
        writing = {
            _ALONE: "nobody reads",
            companion.READ: "another process attaches @latest",
            companion.SNAPSHOT: "another process makes snapshots",
        }
        yield Case(
            "commits",
            f"{commits:,} commits by one connection",
            {"commits": commits, "beside": _INTERVALS},
            [modes.make(name, title, modes.ON_VOLUME, attach_options="") for name, title in writing.items()],
            lambda mode: self._commit(mode, commits),
            warm_up=False,
        )
        yield Case(
            "snapshot",
            f"A snapshot of lineitem, scale factor {scale:g}",
            {"scale": scale, "snapshots": _SNAPSHOTS},
            [modes.make(_ALONE, "in the process that writes", modes.ON_VOLUME, attach_options="")],
            self._snapshot,
            self._prepare,
            warm_up=False,
        )

    def _prepare(self) -> None:
        self._database.prepare_volume(self.bench.volume)

    def _scan(self, mode: Mode) -> Measurement:
        path = self._database.volume_path
        return self._measure(mode, BesideTask, f"{path}@latest", **_beside(mode), written=path)

    def _commit(self, mode: Mode, commits: int) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        database = self.bench.new_database(mode, _NAME)
        try:
            return self._measure(mode, LatencyTask, database, **_beside(mode), commits=commits)
        finally:
            self.bench.remove_database(mode, _NAME)

    def _snapshot(self, mode: Mode) -> Measurement:
        return self._measure(mode, SnapshotTask, self._database.volume_path, snapshots=_SNAPSHOTS)

    def _measure(self, mode: Mode, task: type[Session], database: str, **more: Any) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        session = self.bench.session(mode, database)
        # A reader beside the writer has no temporary files on the volume.
        session.settings["temp_directory"] = str(self.bench.scratch / "tmp")
        return Measurement.of(self.bench.run_task(task(**vars(session), **more)))

    def bars(self, results: Results) -> list[Bar]:
        scan, commits, snapshot = (results.case(name) for name in ("scan", "commits", "snapshot"))
        beside, alone = results.mode(scan, companion.COMMIT), results.mode(scan, _ALONE)
        speed, p_value = results.compare(scan, beside, alone, WALL)
        bars = [at_least("scan of @latest beside a writer against alone", 0.95, speed, p_value)]
        alone = results.mode(commits, _ALONE)
        for name, work in ((companion.READ, "readers attach"), (companion.SNAPSHOT, "snapshots are made")):
            slower, p_value = results.compare(commits, alone, results.mode(commits, name), _P99)
            bars.append(at_most(f"p99 of commits while {work} against alone", 1.1, slower, p_value))
        took = results.median(snapshot, results.mode(snapshot, _ALONE), _SNAPSHOT)
        bars.append(at_most("a snapshot, ms", 10.0, took and took * 1000))
        return bars


def _beside(mode: Mode) -> dict[str, Any]:
    return {"kind": mode.name, "interval": _INTERVALS[mode.name]} if mode.name in _INTERVALS else {}


def _seconds(do: Callable[[], object]) -> float:
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin
