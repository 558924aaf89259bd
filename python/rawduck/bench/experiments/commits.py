"""`rawduck bench commits`: small durable commits by 1 to 16 connections, and what each costs the device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from rawduck.bench.core import modes
from rawduck.bench.core.case import CPU, WALL, WRITTEN, Case, Measurement, Metric, Mode
from rawduck.bench.core.experiment import Bar, Experiment, at_least
from rawduck.bench.core.picture import Picture
from rawduck.bench.core.results import Results
from rawduck.measuring.measure import Result, Session, Stopwatch

_NAME = "bench-commits.duckdb"
#: How many, and the bar against stock.
_CONNECTIONS = {1: 1.1, 4: 1.2, 16: 1.2}
_COMMITS_PER_SCALE = 1000
_LEAST_COMMITS = 48

_RATE = Metric("commits_per_s", "commits/s", 1, ",.0f")
_WRITES = Metric("writes_per_commit", "device writes per commit", 1, ".2f")
_FLUSHES = Metric("flushes_per_commit", "flushes per commit", 1, ".2f")


@dataclass
class CommitsTask(Session):
    """Inserts of one row, each a transaction of its own, shared among connections."""

    connections: int = 1
    commits: int = 0

    def perform(self) -> Result:
        with self.open() as connection:
            connection.execute("CREATE TABLE events (connection BIGINT, number BIGINT, text VARCHAR)")
            cursors = [connection.cursor() for _ in range(self.connections)]
            for cursor in cursors:
                cursor.execute("USE measured")
            before = self._commands(connection)
            with Stopwatch() as watch:
                self._insert(cursors)
            after = self._commands(connection)
            answer = connection.execute("SELECT count(*), sum(number) FROM events").fetchall()
        result = watch.result(rows=answer)
        result.values[_RATE.name] = self.commits / result.wall_seconds
        for metric, operation in ((_WRITES, "write"), (_FLUSHES, "flush")):
            if self.extension:
                result.values[metric.name] = (after[operation] - before[operation]) / self.commits
        return result

    def _insert(self, cursors: list[duckdb.DuckDBPyConnection]) -> None:
        failures: list[duckdb.Error] = []

        def work(index: int) -> None:
            try:
                for number in range(index, self.commits, self.connections):
                    cursors[index].execute("INSERT INTO events VALUES (?, ?, 'a small row')", [index, number])
            except duckdb.Error as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(self.connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _commands(self, connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
        """How many commands of each kind the engine has sent."""
        if not self.extension:
            return {}
        query = "SELECT operation, sum(commands) FROM nvme_stats() GROUP BY operation"
        return {"write": 0, "flush": 0} | dict(connection.execute(query).fetchall())


class Commits(Experiment):
    name = "commits"
    title = "Small commits"
    text = (
        "Connections of one process insert single rows, each in a transaction that is durable when it "
        "returns. Writes and flushes per commit are the commands that the engine sent to the target; stock "
        "DuckDB's cannot be counted from outside."
    )
    scale = 2.0
    quick_scale = 0.2
    quick_runs = 3
    metrics = (_RATE, WALL, CPU, WRITTEN, _WRITES, _FLUSHES)
    main_metric = _RATE
    smaller_is_better = False

    def cases(self) -> Iterator[Case]:
        commits = max(_LEAST_COMMITS, int(self.bench.scale(self) * _COMMITS_PER_SCALE))
        ways = [
            modes.make(modes.VOLUME, "rawduck, volume", modes.ON_VOLUME, attach_options=""),
            modes.make(modes.DIRECT, "rawduck, direct://", modes.ON_FILE_DIRECTLY, attach_options=""),
            modes.make(modes.STOCK, "stock, default", attach_options=""),
        ]
        for connections in _CONNECTIONS:
            yield Case(
                f"connections-{connections}",
                f"{commits:,} commits by {connections} connection{'s' if connections > 1 else ''}",
                {"commits": commits, "connections": connections},
                list(ways),
                lambda mode, connections=connections: self._measure(mode, connections, commits),
                warm_up=False,
            )

    def _measure(self, mode: Mode, connections: int, commits: int) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        database = self.bench.new_database(mode, _NAME)
        task = CommitsTask(
            **vars(self.bench.session(mode, database)), connections=connections, commits=commits
        )
        try:
            return Measurement.of(self.bench.run_task(task))
        finally:
            self.bench.remove_database(mode, _NAME)

    def bars(self, results: Results) -> list[Bar]:
        bars = []
        for case in results.cases:
            ours, stock = results.mode(case, modes.VOLUME), results.mode(case, modes.STOCK)
            ratio, p_value = results.compare(case, ours, stock, WALL)
            connections = int(case.settings["connections"])
            work = f"commits per second against stock, connections: {connections}"
            bars.append(at_least(work, _CONNECTIONS[connections], ratio, p_value))
        return bars

    def plots(self, results: Results, folder: Path) -> list[Picture]:
        from rawduck.bench.core import plots

        x = {case.name: float(case.settings["connections"]) for case in results.cases}
        path = folder / "commits.png"
        return [plots.lines(results, path, _RATE, x, "connections", "Durable commits per second")]
