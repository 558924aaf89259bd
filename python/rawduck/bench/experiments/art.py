"""`rawduck bench art`: persisted indexes, after "Persistent Storage of Adaptive Radix Trees in DuckDB": how
long it takes to store one, to open its database, and to look keys up with the index cold and warm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from rawduck.bench.core import modes
from rawduck.bench.core.case import CPU, READ, WALL, WRITTEN, Case, Measurement, Metric, Mode
from rawduck.bench.core.data import make_cold
from rawduck.bench.core.experiment import Bar, Experiment, at_least
from rawduck.bench.core.results import Results
from rawduck.measuring.measure import QueryTask, Result, Session, Stopwatch

_ROWS_PER_SCALE = 10_000_000
_LOOKUPS, _QUICK_LOOKUPS = 5000, 1000
_NAME = "bench-art.duckdb"

_OPEN_TIME = Metric("open_ms", "open ms", 1, ".1f")
_OPEN_BYTES = Metric("open_bytes", "MiB read to open", 1024**2, ".2f")
_COLD_LOOKUP = Metric("cold_lookup_us", "µs per cold lookup", 1, ".0f")
_COLD_BYTES = Metric("cold_lookup_bytes", "KiB per cold lookup", 1024, ".1f")
_HOT_LOOKUP = Metric("hot_lookup_us", "µs per hot lookup", 1, ".0f")
_SHARE = Metric("read_share_percent", "% of the file read", 1, ".2f")
_KEPT = Metric("indexes_kept", "indexes kept", 1, ".0f")

_CONSTRAINTS = """
CREATE TABLE parents (id BIGINT PRIMARY KEY, code BIGINT UNIQUE);
CREATE TABLE children (id BIGINT, parent BIGINT REFERENCES parents (id), x BIGINT, y BIGINT);
INSERT INTO parents SELECT range, range * 7 FROM range({rows});
INSERT INTO children SELECT range, range, range, range * 2 FROM range({rows});
CREATE UNIQUE INDEX sums ON children ((x + y));
CHECKPOINT
"""
_STORE = """
CREATE TABLE integers (x INTEGER PRIMARY KEY);
INSERT INTO integers SELECT * FROM range({rows});
CHECKPOINT
"""
#: Statements that a surviving index must refuse, by what it is.
_REFUSED = {
    "primary key": "INSERT INTO parents VALUES (1, -1)",
    "unique": "INSERT INTO parents VALUES (-1, 7)",
    "foreign key, child": "INSERT INTO children VALUES (0, -5, 0, 0)",
    "foreign key, parent": "DELETE FROM parents WHERE id = 1",
    # DuckDB 2.0.0 does not use an index over an expression to find rows, but it keeps one that is unique.
    "expression": "INSERT INTO children VALUES (0, 1, 100, 200)",
}
_LOOKUP = "SELECT code FROM parents WHERE id = 300"


@dataclass
class LookupTask(Session):
    """Opens a database and looks keys up, twice."""

    table: str = ""
    column: str = ""
    keys: tuple[int, ...] = ()

    def perform(self) -> Result:
        query = f"SELECT {self.column} FROM {self.table} WHERE {self.column} = ?"
        with self.connect() as connection:
            with Stopwatch() as opening:
                self.attach(connection)
            cold_watch, found = self._look_up(connection, query)
            hot_watch, _ = self._look_up(connection, query)
        opened, cold_result, hot = opening.result(), cold_watch.result(), hot_watch.result()
        values = {
            _OPEN_TIME.name: opened.wall_seconds * 1000,
            _OPEN_BYTES.name: opened.device_bytes,
            _COLD_LOOKUP.name: cold_result.wall_seconds / len(self.keys) * 1e6,
            _COLD_BYTES.name: cold_result.device_bytes / len(self.keys),
            _HOT_LOOKUP.name: hot.wall_seconds / len(self.keys) * 1e6,
        }
        return cold_watch.result(rows=[(len(found), sum(found))], values=values)

    def _look_up(self, connection: duckdb.DuckDBPyConnection, query: str) -> tuple[Stopwatch, list[int]]:
        found = []
        with Stopwatch() as watch:
            for key in self.keys:
                found += [row[0] for row in connection.execute(query, [key]).fetchall()]
        return watch, found


@dataclass
class ConstraintsTask(Session):
    """Opens a database, finds a row by an index, then says of each index whether it still does its duty."""

    def perform(self) -> Result:
        with self.connect() as connection:
            with Stopwatch() as opening:
                self.attach(connection)
            with Stopwatch() as looking:
                found = connection.execute(_LOOKUP).fetchall()
            plan = connection.execute(f"EXPLAIN ANALYZE {_LOOKUP}").fetchall()[0][1]
            kept = {"lookup": "Index Scan" in plan and len(found) == 1}
            kept |= {name: _refuses(connection, statement) for name, statement in _REFUSED.items()}
        values = {
            _OPEN_TIME.name: opening.result().wall_seconds * 1000,
            _OPEN_BYTES.name: opening.result().device_bytes,
            _COLD_LOOKUP.name: looking.result().wall_seconds * 1e6,
            _COLD_BYTES.name: looking.result().device_bytes,
            _KEPT.name: sum(kept.values()),
        }
        rows = [(name, "kept" if there else "lost") for name, there in kept.items()]
        return looking.result(rows=rows, values=values)


def _refuses(connection: duckdb.DuckDBPyConnection, statement: str) -> bool:
    connection.execute("BEGIN")
    try:
        connection.execute(statement)
    except duckdb.ConstraintException:
        return True
    finally:
        connection.execute("ROLLBACK")
    return False


class Art(Experiment):
    name = "art"
    title = "Persisted ART indexes"
    text = (
        f"A table with a primary key, of {_ROWS_PER_SCALE / 1e6:g} million rows per unit of scale: the time "
        "to insert and checkpoint it; then, cold and in another process, to open the database and to look "
        "keys up that are spread evenly, twice in one session. An index is loaded lazily: opening and "
        "looking a key up must read a small part of the file."
    )
    metrics = (
        WALL, CPU, READ, WRITTEN, _OPEN_TIME, _OPEN_BYTES, _COLD_LOOKUP, _COLD_BYTES, _HOT_LOOKUP, _SHARE,
        _KEPT,
    )  # fmt: skip
    quick_scale = 0.1
    runs = 5
    quick_runs = 3

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        rows = int(scale * _ROWS_PER_SCALE)
        settings = {"rows": rows}
        ways = [modes.make(modes.VOLUME, "rawduck, volume", modes.ON_VOLUME, attach_options="")]
        ways.append(modes.make(modes.STOCK, "stock, default", attach_options=""))
        ways = modes.with_config(
            ways, threads=self.bench.options.threads, memory_limit=self.bench.options.memory_limit
        )
        store = _STORE.format(rows=rows)
        lookups = _QUICK_LOOKUPS if self.bench.options.quick else _LOOKUPS
        keys = tuple(range(0, rows, max(1, rows // lookups)))
        few = max(1000, rows // 10)
        constraints = _CONSTRAINTS.format(rows=few)
        yield Case(
            "store",
            f"Store {rows:,} rows",
            settings,
            list(ways),
            lambda mode: self._store(mode, store),
            warm_up=False,
        )
        yield Case(
            "lookup",
            f"Open, and look up {len(keys):,} of {rows:,} keys",
            settings | {"lookups": len(keys)},
            list(ways),
            lambda mode: self._look_up(mode, keys),
            lambda: self._store_all(ways, store),
            warm_up=False,
        )
        yield Case(
            "constraints",
            f"Unique, foreign-key and expression indexes over {few:,} rows, reopened",
            {"rows": few},
            list(ways),
            self._check_constraints,
            lambda: self._store_all(ways, constraints),
            warm_up=False,
        )

    def _database(self, mode: modes.DuckMode) -> str:
        return self.bench.volume.path(_NAME) if mode.place == modes.ON_VOLUME else str(self._stock_path)

    @property
    def _stock_path(self) -> Path:
        return self.bench.scratch / _NAME

    def _store(self, mode: Mode, statements: str) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        session = self.bench.session(mode, self.bench.new_database(mode, _NAME))
        return Measurement.of(self.bench.run_task(QueryTask(**vars(session), query=statements)))

    def _store_all(self, ways: list[modes.DuckMode], statements: str) -> None:
        for mode in ways:
            self._store(mode, statements)

    def _look_up(self, mode: Mode, keys: tuple[int, ...]) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        session = self._read_only(mode)
        task = LookupTask(**vars(session), table="integers", column="x", keys=keys)
        measurement = Measurement.of(self.bench.run_task(task))
        values = measurement.values
        read = values[_OPEN_BYTES.name] + values[_COLD_BYTES.name] * len(keys)
        values[_SHARE.name] = 100 * read / self._size(mode)
        return measurement

    def _check_constraints(self, mode: Mode) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        make_cold(self._stock_path)
        session = self.bench.session(mode, self._database(mode))
        measurement = Measurement.of(self.bench.run_task(ConstraintsTask(**vars(session))))
        values = measurement.values
        read = values[_OPEN_BYTES.name] + values[_COLD_BYTES.name]
        values[_SHARE.name] = 100 * read / self._size(mode)
        return measurement

    def _read_only(self, mode: modes.DuckMode) -> Session:
        make_cold(self._stock_path)
        session = self.bench.session(mode, self._database(mode))
        session.attach_options = "READ_ONLY"
        return session

    def _size(self, mode: modes.DuckMode) -> int:
        if mode.place == modes.ON_VOLUME:
            return self.bench.volume.file_size(_NAME)
        return self._stock_path.stat().st_size

    def bars(self, results: Results) -> list[Bar]:
        case = results.case("constraints")
        ours = results.mode(case, modes.VOLUME)
        kept = results.median(case, ours, _KEPT) if case and ours else None
        wanted = len(_REFUSED) + 1
        return [at_least("indexes that do their duty after reopening", wanted, kept, show=".0f")]
