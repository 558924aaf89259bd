"""`rawduck bench load`: TPC-H from Parquet into a new database, until it is durable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rawduck import tpch
from rawduck.bench.core import modes
from rawduck.bench.core.case import WALL, Case, Measurement, Mode
from rawduck.bench.core.experiment import Bar, Experiment, at_least
from rawduck.bench.core.results import Results
from rawduck.measuring.measure import QueryTask

_NAME = "bench-load.duckdb"
_CHECK = (
    "SELECT (SELECT count(*) FROM lineitem), (SELECT sum(l_extendedprice) FROM lineitem), "
    "(SELECT sum(hash(o_comment)) FROM orders), (SELECT count(*) FROM partsupp)"
)
_CHUNK_BYTES = 8 * 1024**2


class Load(Experiment):
    name = "load"
    title = "Bulk load"
    text = (
        "All eight tables of TPC-H are loaded from Parquet files, which lie in memory, into a new database, "
        "one CREATE TABLE AS after the other and a CHECKPOINT at the end, which makes them durable."
    )
    quick_scale = 0.5

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        database = self.bench.database(scale)
        statements = [tpch.load_statement(database.parquet, table) for table in tpch.TABLES]
        self._parquet = [tpch.parquet_path(database.parquet, table) for table in tpch.TABLES]
        self._query = "; ".join([*statements, "CHECKPOINT"])
        ways = [
            modes.make(modes.VOLUME, "rawduck, volume", modes.ON_VOLUME, attach_options=""),
            modes.make(modes.STOCK, "stock, default", attach_options=""),
        ]
        yield Case(
            "load",
            f"TPC-H, scale factor {scale:g}",
            {"scale": scale},
            modes.with_config(
                ways, threads=self.bench.options.threads, memory_limit=self.bench.options.memory_limit
            ),
            self._measure,
            database.generate,
            warm_up=False,
        )

    def _measure(self, mode: Mode) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        for path in self._parquet:
            _read(path)
        session = self.bench.session(mode, self.bench.new_database(mode, _NAME))
        task = QueryTask(**vars(session), query=self._query, after=_CHECK)
        try:
            return Measurement.of(self.bench.run_task(task))
        finally:
            self.bench.remove_database(mode, _NAME)

    def bars(self, results: Results) -> list[Bar]:
        case = results.case("load")
        ours, stock = results.mode(case, modes.VOLUME), results.mode(case, modes.STOCK)
        ratio, p_value = results.compare(case, ours, stock, WALL)
        return [at_least("bulk load against stock default", 1.05, ratio, p_value)]


def _read(path: Path) -> None:
    """Brings a file into the page cache."""
    with path.open("rb") as file:
        while file.read(_CHUNK_BYTES):
            pass
