"""`rawduck bench detach`: how long DETACH takes beside a query that has read the database and goes on."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from rawduck.bench.core import modes
from rawduck.bench.core.bench import database_of
from rawduck.bench.core.case import CPU, WALL, Case, Measurement, Metric, Mode
from rawduck.bench.core.experiment import Bar, Experiment, at_most
from rawduck.bench.core.results import Results
from rawduck.measuring.measure import Result, Session, Stopwatch

_READ = "SELECT sum(l_orderkey), sum(l_partkey), sum(l_suppkey) FROM measured.lineitem"
_COMPUTE = "SELECT sum(hash(range) % 7) FROM range(3_000_000)"
_DETACHES = {True: 3, False: 20}
#: Until the other connection computes.
_PAUSE_S = 0.02
_MS_MOST = 5.0

_MEDIAN = Metric("detach_median_s", "DETACH, median ms", 1e-3)
_WORST = Metric("detach_worst_s", "DETACH, slowest ms", 1e-3)


@dataclass
class DetachTask(Session):
    """Attaches, has another connection read the database and then compute, and detaches, so many times."""

    detaches: int = 1

    def perform(self) -> Result:
        took, rows = [], []
        with self.connect() as connection, Stopwatch() as watch:
            for _ in range(self.detaches):
                self.attach(connection)
                connection.execute("USE memory")
                seconds, answer = _detach(connection)
                took.append(seconds)
                rows.append(answer)
        values = {_MEDIAN.name: statistics.median(took), _WORST.name: max(took)}
        return watch.result(rows=rows, values=values)


def _detach(connection: duckdb.DuckDBPyConnection) -> tuple[float, tuple]:
    """How long it took, and what the other connection read."""
    has_read, stop = threading.Event(), threading.Event()
    answers: list[tuple] = []

    def read_and_compute() -> None:
        with connection.cursor() as cursor:
            try:
                answers.append(cursor.execute(_READ).fetchone())
            finally:
                has_read.set()
            while not stop.is_set():
                cursor.execute(_COMPUTE).fetchone()

    thread = threading.Thread(target=read_and_compute)
    thread.start()
    try:
        has_read.wait()
        time.sleep(_PAUSE_S)
        begin = time.perf_counter()
        connection.execute("DETACH measured")
        seconds = time.perf_counter() - begin
    finally:
        stop.set()
        thread.join()
    return seconds, answers[0] if answers else ()


class Detach(Experiment):
    name = "detach"
    title = "DETACH beside a running query"
    text = (
        "A connection reads three columns of lineitem and then computes something else, without an end. "
        "Another one detaches the database meanwhile. Each measurement is that several times in one process: "
        f"{_DETACHES[False]}, {_DETACHES[True]} in a quick run."
    )
    scale = 1.0
    quick_scale = 0.2
    metrics = (_MEDIAN, _WORST, WALL, CPU)
    main_metric = _MEDIAN

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        self._database = self.bench.database(scale, "lineitem")
        detaches = _DETACHES[self.bench.options.quick]
        ours = [mode for mode in modes.ours() if mode.name != modes.VOLUME_ALLOCATOR]
        yield Case(
            "detach",
            f"DETACH of lineitem, scale factor {scale:g}",
            {"scale": scale, "detaches": detaches, "threads": self.bench.options.threads},
            modes.with_config([*ours, modes.stock()[0]], threads=self.bench.options.threads),
            lambda mode: self._measure(mode, detaches),
            lambda: self._database.prepare_volume(self.bench.volume),
            warm_up=False,
        )

    def _measure(self, mode: Mode, detaches: int) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        session = self.bench.session(mode, database_of(mode, self._database))
        return Measurement.of(self.bench.run_task(DetachTask(**vars(session), detaches=detaches)))

    def bars(self, results: Results) -> list[Bar]:
        case = results.case("detach")
        median = results.median(case, results.mode(case, modes.VOLUME), _MEDIAN)
        return [at_most("DETACH beside a query, ms", _MS_MOST, median and median * 1000)]
