"""`rawduck bench spill`: an external sort and a wide aggregation that do not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from rawduck.bench import grouping, modes
from rawduck.bench.experiment import WALL, Bar, Case, Experiment, Measurement, Mode, at_least
from rawduck.bench.results import Results

_TITLES = {"sort": "external sort of every column", "wide": "wide aggregation by three keys"}


class Spill(Experiment):
    name = "spill"
    title = "Sorting and aggregating with little memory"
    text = (
        "lineitem, cold, is sorted by price, and grouped by supplier, part and order with any value of its "
        "other columns; the memory limit is a quarter of the database unless one is given. Temporary files "
        "go to the volume, or for stock to a folder on the same disk, where they may stay in the page cache, "
        "which no memory limit of DuckDB counts: compare the MiB read."
    )
    quick_runs = 3
    gib_per_scale = 3.0

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        self._database = self.bench.database(scale, "lineitem")
        self._database.prepare_stock()
        memory = self.bench.memory_limit(self._database)
        stock = [mode for mode in modes.stock() if mode.name in (modes.STOCK, "stock_prefetch")]
        ways = modes.with_config(
            [modes.ours()[0], *stock], memory_limit=memory, threads=self.bench.options.threads
        )
        rows = self._rows()
        queries = {
            "sort": "SELECT * FROM lineitem ORDER BY l_extendedprice, l_orderkey, l_linenumber "
            f"OFFSET {rows - 1}",
            "wide": grouping.query(("l_suppkey", "l_partkey", "l_orderkey"), True, self._groups()),
        }
        for name, query in queries.items():
            yield Case(
                name,
                f"{_TITLES[name]}, scale factor {scale:g}, memory limit {memory}",
                {"scale": scale, "query": query},
                list(ways),
                lambda mode, name=name, query=query: self._measure(mode, name, query),
                lambda: self._database.prepare_volume(self.bench.volume),
                warm_up=False,
            )

    def _rows(self) -> int:
        return self._count("SELECT count(*) FROM lineitem")

    def _groups(self) -> int:
        return self._count(
            "SELECT count(*) FROM (SELECT DISTINCT l_suppkey, l_partkey, l_orderkey FROM lineitem)"
        )

    def _count(self, query: str) -> int:
        with duckdb.connect(str(self._database.stock_path), read_only=True) as connection:
            connection.execute("SET enable_progress_bar = false")
            return connection.execute(query).fetchone()[0]

    def _measure(self, mode: Mode, name: str, query: str) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        measurement = self.bench.query(mode, self._database, query)
        if name == "wide":  # which group is left over is not determined
            measurement.rows = [(len(measurement.rows or []),)]
        return measurement

    def bars(self, results: Results) -> list[Bar]:
        bars = []
        for name, title in _TITLES.items():
            case = results.case(name)
            ratio, p_value = results.compare(
                case, results.mode(case, modes.VOLUME), results.mode(case, modes.STOCK), WALL
            )
            bars.append(at_least(f"{title} against stock default", 1.3, ratio, p_value))
        return bars
