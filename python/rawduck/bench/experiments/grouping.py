"""`rawduck bench grouping`: the grouping queries of Kuiper, Boncz and Mühleisen, "Robust External Hash
Aggregation in the Solid State Age" (ICDE 2024): 13 groupings of lineitem, thin and wide, in memory
and spilling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from rawduck.bench.core import modes, stats
from rawduck.bench.core.case import WALL, Case, Measurement, Mode
from rawduck.bench.core.experiment import Bar, Experiment, at_least
from rawduck.bench.core.picture import Picture
from rawduck.bench.core.report import table
from rawduck.bench.core.results import Results

GROUPINGS = (
    ("l_returnflag", "l_linestatus"),
    ("l_partkey",),
    ("l_partkey", "l_returnflag", "l_linestatus"),
    ("l_suppkey", "l_partkey"),
    ("l_orderkey",),
    ("l_orderkey", "l_returnflag", "l_linestatus"),
    ("l_suppkey", "l_partkey", "l_returnflag", "l_linestatus"),
    ("l_suppkey", "l_partkey", "l_shipinstruct"),
    ("l_suppkey", "l_partkey", "l_shipmode"),
    ("l_suppkey", "l_partkey", "l_shipinstruct", "l_shipmode"),
    ("l_orderkey", "l_partkey"),
    ("l_orderkey", "l_suppkey"),
    ("l_suppkey", "l_partkey", "l_orderkey"),
)
_BOUND_BY_SPILLING = "wide-spilling"
_QUICK_GROUPINGS = (1, 4, 13)
_COLUMNS = (
    "l_orderkey", "l_partkey", "l_suppkey", "l_linenumber", "l_quantity", "l_extendedprice", "l_discount",
    "l_tax", "l_returnflag", "l_linestatus", "l_shipdate", "l_commitdate", "l_receiptdate", "l_shipinstruct",
    "l_shipmode", "l_comment",
)  # fmt: skip


def query(grouping: tuple[str, ...], wide: bool, groups: int) -> str:
    """All groups are made and all but one are skipped, so that nothing is spent on handing them over."""
    others = [column for column in _COLUMNS if column not in grouping] if wide else []
    selected = [*grouping, *(f"any_value({column})" for column in others)]
    return f"SELECT {', '.join(selected)} FROM lineitem GROUP BY {', '.join(grouping)} OFFSET {groups - 1}"


class Grouping(Experiment):
    name = "grouping"
    title = "Thin and wide grouping"
    text = (
        "13 groupings of lineitem with more and more groups. Thin selects the keys only, wide any value of "
        "every other column too. In memory there is no memory limit; spilling, the limit is a quarter of the "
        "database unless one is given, and temporary files lie on the database's disk. Databases are cold. "
        "Stock's temporary files may stay in the page cache, which no memory limit of DuckDB counts."
    )
    quick_scale = 0.2
    runs = 5
    quick_runs = 2
    gib_per_scale = 3.0

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        self._database = self.bench.database(scale, "lineitem")
        self._database.prepare_stock()
        numbers = _QUICK_GROUPINGS if self.bench.options.quick else range(1, len(GROUPINGS) + 1)
        for memory in (None, self.bench.memory_limit(self._database)):
            for wide in (False, True):
                for number in numbers:
                    yield self._case(scale, number, wide, memory)

    def _case(self, scale: float, number: int, wide: bool, memory: str | None) -> Case:
        grouping = GROUPINGS[number - 1]
        kind, place = "wide" if wide else "thin", f"memory limit {memory}" if memory else "in memory"
        return Case(
            f"{number:02}-{kind}-{'spilling' if memory else 'memory'}",
            f"{number}, {kind}, {place}: {', '.join(grouping)}, scale factor {scale:g}",
            {"scale": scale, "grouping": ",".join(grouping), "wide": wide},
            modes.with_config(self._ways(), memory_limit=memory, threads=self.bench.options.threads),
            lambda mode: self._measure(mode, grouping, wide),
            lambda: self._database.prepare_volume(self.bench.volume),
            warm_up=False,
        )

    def _ways(self) -> list[modes.DuckMode]:
        stock = [mode for mode in modes.stock() if mode.name in (modes.STOCK, "stock_prefetch")]
        return [modes.ours()[0], *stock]

    def _measure(self, mode: Mode, grouping: tuple[str, ...], wide: bool) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        text = query(grouping, wide, self._groups(grouping))
        measurement = self.bench.query(mode, self._database, text)
        # Which group is left over is not determined; that exactly one is, shows that their number is right.
        measurement.rows = [(len(measurement.rows or []),)]
        return measurement

    def _groups(self, grouping: tuple[str, ...]) -> int:
        if not hasattr(self, "_counts"):
            self._counts: dict[tuple[str, ...], int] = {}
        if grouping not in self._counts:
            with duckdb.connect(str(self._database.stock_path), read_only=True) as connection:
                connection.execute("SET enable_progress_bar = false")
                keys = ", ".join(grouping)
                count = f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM lineitem)"
                self._counts[grouping] = connection.execute(count).fetchone()[0]
        return self._counts[grouping]

    def notes(self, results: Results) -> list[str]:
        rows = []
        for kind in ("thin-memory", "wide-memory", "thin-spilling", _BOUND_BY_SPILLING):
            ratios = _speeds(results, kind)
            if ratios:
                numbers = (stats.geometric_mean(ratios), min(ratios), max(ratios))
                rows.append((kind.replace("-", ", "), *(f"{number:.2f}" for number in numbers)))
        header = ("queries", ">geometric mean", ">worst", ">best")
        return ["## Speed of rawduck, volume, against the better stock mode", table(header, rows)]

    def bars(self, results: Results) -> list[Bar]:
        ratios = _speeds(results, _BOUND_BY_SPILLING)
        mean = stats.geometric_mean(ratios) if ratios else None
        work = f"geometric mean over {len(ratios)} wide groupings that spill, against the better stock mode"
        return [at_least(work, 1.0, mean)]

    def plots(self, results: Results, folder: Path) -> list[Picture]:
        from rawduck.bench.core import plots

        paths = []
        for memory in ("memory", "spilling"):
            groups: dict[str, dict[str, float]] = {}
            for case in results.cases:
                number, kind, where = case.name.split("-")
                speed = _speed(results, case)
                if where == memory and speed is not None:
                    groups.setdefault(str(int(number)), {})[kind] = speed
            title = f"Grouping, {memory}: speed of rawduck against the better stock mode"
            path = folder / f"grouping-{memory}.png"
            paths.append(plots.grouped(path, title, "times as fast", groups))
        return paths


def _speeds(results: Results, kind: str) -> list[float]:
    cases = [case for case in results.cases if case.name.endswith(kind)]
    return [ratio for case in cases if (ratio := _speed(results, case)) is not None]


def _speed(results: Results, case: Case) -> float | None:
    ours, best = results.mode(case, modes.VOLUME), results.best(case, WALL)
    return results.compare(case, ours, best, WALL)[0]
