"""`rawduck bench tpch`: the 22 queries, cold, with memory for a quarter of the data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rawduck.bench.core import modes, stats
from rawduck.bench.core.case import WALL, Case, Kind, Mode
from rawduck.bench.core.experiment import Bar, Experiment, at_least
from rawduck.bench.core.picture import Picture
from rawduck.bench.core.report import table
from rawduck.bench.core.results import Results


class Tpch(Experiment):
    name = "tpch"
    title = "TPC-H, 22 queries"
    text = (
        "Each query runs cold in a process of its own, with a memory limit of a quarter of the database "
        "unless one is given; what does not fit is spilled to the disk that the database lies on. Best stock "
        "is the mode of stock DuckDB with the best geometric mean over all queries; the last column of the "
        "table takes the best of them for each query."
    )
    quick_scale = 0.2
    gib_per_scale = 3.0
    quick_runs = 2

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        self._database = self.bench.database(scale)
        self._database.prepare_stock()
        memory = self.bench.memory_limit(self._database)
        ways = [*modes.ours(memory), *modes.stock(memory)]
        ways = modes.with_config(ways, memory_limit=memory, threads=self.bench.options.threads)
        for number, query in self.bench.tpch_queries(self, scale).items():
            yield Case(
                f"q{number:02}",
                f"Query {number}, scale factor {scale:g}, memory limit {memory}",
                {"scale": scale, "query": query},
                list(ways),
                lambda mode, query=query: self.bench.query(mode, self._database, query),
                lambda: self._database.prepare_volume(self.bench.volume),
                warm_up=False,
            )

    def bars(self, results: Results) -> list[Bar]:
        best = best_stock(results)
        ratios = ratios_against(results, best) if best else {}
        mean = stats.geometric_mean(list(ratios.values())) if ratios else None
        worst = min(ratios, key=ratios.get, default=None)
        against = f"best stock ({best.title})" if best else "best stock"
        return [
            at_least(f"geometric mean over {len(ratios)} queries against {against}", 1.2, mean),
            at_least(
                f"worst query{f' ({worst})' if worst else ''} against {against}",
                0.97,
                ratios[worst] if worst else None,
            ),
        ]

    def notes(self, results: Results) -> list[str]:
        best = best_stock(results)
        if not best:
            return []
        columns = [ratios_against(results, mode) for mode in (_default(results), best)]
        columns.append(_ratios_against_each_best(results))
        names = [case.name for case in results.cases if all(case.name in column for column in columns)]
        rows = [(name, *(f"{column[name]:.2f}" for column in columns)) for name in names]
        means = (
            [stats.geometric_mean([column[name] for name in names]) for column in columns] if names else []
        )
        rows.append(("geometric mean", *(f"{mean:.2f}" for mean in means)))
        header = ("query", ">times stock, default", f">times {best.title}", ">times each query's best stock")
        return ["## Speed of rawduck, volume", table(header, rows)]

    def plots(self, results: Results, folder: Path) -> list[Picture]:
        from rawduck.bench.core import plots

        best = best_stock(results)
        if not best:
            return []
        against = {"against stock, default": ratios_against(results, _default(results))}
        against[f"against {best.title}"] = ratios_against(results, best)
        groups = {
            case.name: {title: ratios[case.name] for title, ratios in against.items() if case.name in ratios}
            for case in results.cases
        }
        title = "Speed of rawduck, volume (higher is faster; 1 is the same)"
        return [plots.grouped(folder / "tpch.png", title, "times as fast", groups)]


def best_stock(results: Results) -> Mode | None:
    """The mode of stock with the best geometric mean, of those that have results for every case."""
    if not results.cases:
        return None
    everywhere = [
        mode
        for mode in results.modes(results.cases[0], Kind.STOCK)
        if all(results.mode(case, mode.name) for case in results.cases)
    ]

    def mean(mode: Mode) -> float:
        return stats.geometric_mean([results.median(case, mode, WALL) for case in results.cases])

    return min(everywhere, key=mean, default=None)


def _default(results: Results) -> Mode | None:
    return results.mode(results.cases[0], modes.STOCK)


def ratios_against(results: Results, other: Mode | None) -> dict[str, float]:
    """Times by which the volume is faster than another mode, by case, where both have results."""
    ratios = {}
    for case in results.cases:
        ours = results.mode(case, modes.VOLUME)
        ratio, _ = results.compare(case, ours, results.mode(case, other.name) if other else None, WALL)
        if ratio is not None:
            ratios[case.name] = ratio
    return ratios


def _ratios_against_each_best(results: Results) -> dict[str, float]:
    ratios = {}
    for case in results.cases:
        ours, best = results.mode(case, modes.VOLUME), results.best(case, WALL)
        ratio, _ = results.compare(case, ours, best, WALL)
        if ratio is not None:
            ratios[case.name] = ratio
    return ratios
