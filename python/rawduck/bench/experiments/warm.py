"""`rawduck bench warm`: queries on data that DuckDB holds in memory, where a file system must not matter."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from rawduck.bench.core import modes, stats
from rawduck.bench.core.bench import database_of
from rawduck.bench.core.case import CPU, FAULTS, WALL, Case, Measurement, Mode
from rawduck.bench.core.experiment import Bar, Experiment
from rawduck.bench.core.results import Results
from rawduck.measuring.measure import Result, Session, Stopwatch

_LOW, _HIGH = 0.99, 1.01
_REPEATS = 7
_QUICK_QUERIES = (1, 3, 6, 9, 13, 18)


@dataclass
class WarmTask(Session):
    """Runs a query once to bring its data into DuckDB's memory, then again and again; the median counts."""

    query: str = ""
    repeats: int = _REPEATS

    def perform(self) -> Result:
        with self.open() as connection:
            rows = connection.execute(self.query).fetchall()
            results = []
            for _ in range(self.repeats):
                with Stopwatch() as watch:
                    connection.execute(self.query).fetchall()
                results.append(watch.result())
        return Result(
            statistics.median(result.wall_seconds for result in results),
            statistics.median(result.cpu_seconds for result in results),
            rows,
            page_faults=int(statistics.median(result.page_faults for result in results)),
        )


class Warm(Experiment):
    name = "warm"
    title = "Warm queries"
    text = (
        "TPC-H queries whose data is in DuckDB's memory already. A measurement is the median of "
        f"{_REPEATS} executions in one process, after one that does not count."
    )
    scale = 1.0
    quick_scale = 0.5
    metrics = (WALL, CPU, FAULTS)
    quick_runs = 4

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        self._database = self.bench.database(scale)
        queries = self.bench.tpch_queries(self, scale)
        numbers = _QUICK_QUERIES if self.bench.options.quick else tuple(queries)
        ways = [modes.ours()[0], modes.stock()[0]]
        for number, query in ((number, queries[number]) for number in numbers if number in queries):
            yield Case(
                f"q{number:02}",
                f"Query {number}, warm, scale factor {scale:g}",
                {"scale": scale, "query": query, "repeats": _REPEATS},
                modes.with_config(ways, threads=self.bench.options.threads),
                lambda mode, query=query: self._measure(mode, query),
                lambda: self._database.prepare_volume(self.bench.volume),
                warm_up=False,
            )

    def _measure(self, mode: Mode, query: str) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        session = self.bench.session(mode, database_of(mode, self._database))
        return Measurement.of(self.bench.run_task(WarmTask(**vars(session), query=query)))

    def bars(self, results: Results) -> list[Bar]:
        ratios = []
        for case in results.cases:
            ours, stock = results.mode(case, modes.VOLUME), results.mode(case, modes.STOCK)
            ratio, _ = results.compare(case, ours, stock, WALL)
            if ratio is not None:
                ratios.append(ratio)
        mean = stats.geometric_mean(ratios) if ratios else None
        met = mean is not None and _LOW <= mean <= _HIGH
        work = f"geometric mean over {len(ratios)} warm queries against stock"
        return [Bar(work, f"{_LOW} to {_HIGH}", mean, met, format=".3f")]
