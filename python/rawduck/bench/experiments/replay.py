"""`rawduck bench replay`: how long a database takes to open whose log has to be replayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

import rawduck
from rawduck.bench.core import modes
from rawduck.bench.core.case import QUERY_METRICS, WALL, Case, Measurement, Mode
from rawduck.bench.core.data import make_cold
from rawduck.bench.core.experiment import Bar, Experiment, at_least
from rawduck.bench.core.results import Results
from rawduck.measuring.measure import Result, Session, Stopwatch
from rawduck.paths import direct_path, quote

_NAME = "bench-replay.duckdb"
_LOG_NAME = f"{_NAME}.wal"
_TRANSACTIONS_PER_SCALE = 16
#: Fewer than a row group: more would be written to the database at once, and the log would only refer to it.
_ROWS = 100_000
_CREATE = "CREATE TABLE measurements (id BIGINT, kind INTEGER, value DOUBLE, note VARCHAR)"
_INSERT = """
INSERT INTO measurements
SELECT range, range % 1000, range / 7, 'row ' || hash(range) FROM range({first}, {end})
"""
_CHECK = "SELECT count(*), sum(id), sum(hash(note)) FROM measurements"


@dataclass
class OpenTask(Session):
    """Opens a database; the query that gives the answer is not counted."""

    query: str = ""

    def perform(self) -> Result:
        with self.connect() as connection:
            with Stopwatch() as watch:
                self.attach(connection)
            rows = connection.execute(self.query).fetchall()
        return watch.result(rows=rows)


class Replay(Experiment):
    name = "replay"
    title = "Replaying a log"
    text = (
        f"A database whose log holds {_TRANSACTIONS_PER_SCALE} transactions of {_ROWS:,} rows for each unit "
        "of the scale factor, about 75 MB, is opened to be read, as after a crash. Log and database are "
        "cold. What is measured is ATTACH, which replays the log."
    )
    scale = 1.0
    quick_scale = 0.25
    gib_per_scale = 0.1
    metrics = QUERY_METRICS

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        transactions = max(1, round(scale * _TRANSACTIONS_PER_SCALE))
        yield Case(
            "replay",
            f"Open a database with {transactions} transactions of {_ROWS:,} rows in its log",
            {"transactions": transactions, "rows": _ROWS},
            modes.with_config(
                [
                    modes.make(modes.VOLUME, "rawduck, volume", modes.ON_VOLUME),
                    modes.make(modes.DIRECT, "rawduck, direct://", modes.ON_FILE_DIRECTLY),
                    modes.make(modes.STOCK, "stock, default"),
                ],
                threads=self.bench.options.threads,
                memory_limit=self.bench.options.memory_limit,
            ),
            self._measure,
            lambda: self._prepare(transactions),
            warm_up=False,
        )

    @property
    def _stock_path(self) -> Path:
        return self.bench.scratch / _NAME

    @property
    def _log_path(self) -> Path:
        return self.bench.scratch / _LOG_NAME

    def _prepare(self, transactions: int) -> None:
        """A copy of one of them would do, but copying refuses databases whose log is needed."""
        for path in (self._stock_path, self._log_path):
            path.unlink(missing_ok=True)
        volume = self.bench.volume
        volume.remove(volume.path(_NAME))
        volume.will_make(volume.path(_NAME))
        with duckdb.connect() as connection:
            _write_log(connection, str(self._stock_path), transactions)
        with rawduck.connect() as connection:
            _write_log(connection, volume.path(_NAME), transactions)

    def _measure(self, mode: Mode) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        make_cold(self._stock_path)
        make_cold(self._log_path)
        places = {
            modes.ON_VOLUME: self.bench.volume.path(_NAME),
            modes.ON_FILE_DIRECTLY: direct_path(str(self._stock_path)),
            modes.ON_FILE: str(self._stock_path),
        }
        session = self.bench.session(mode, places[mode.place])
        return Measurement.of(self.bench.run_task(OpenTask(**vars(session), query=_CHECK)))

    def bars(self, results: Results) -> list[Bar]:
        case = results.case("replay")
        bars = []
        for name, work in ((modes.VOLUME, "on a volume"), (modes.DIRECT, "through direct://")):
            ours, stock = results.mode(case, name), results.mode(case, modes.STOCK)
            ratio, p_value = results.compare(case, ours, stock, WALL)
            bars.append(at_least(f"replaying a log {work} against stock default", 1.0, ratio, p_value))
        return bars


def _write_log(connection: duckdb.DuckDBPyConnection, database: str, transactions: int) -> None:
    """A new database whose log is never replaced by a checkpoint, also not when the connection is closed."""
    connection.execute("SET enable_progress_bar = false")
    connection.execute("PRAGMA disable_checkpoint_on_shutdown")
    connection.execute("SET checkpoint_threshold = '1TB'")
    connection.execute(f"ATTACH {quote(database)} AS made")
    connection.execute("USE made")
    connection.execute(_CREATE)
    for first in range(0, transactions * _ROWS, _ROWS):
        connection.execute(_INSERT.format(first=first, end=first + _ROWS))
