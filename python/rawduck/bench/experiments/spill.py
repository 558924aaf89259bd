"""`rawduck bench spill`: an external sort and a wide aggregation that do not fit into memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import duckdb

from rawduck.bench.core import modes
from rawduck.bench.core.case import WALL, Case, Measurement, Mode
from rawduck.bench.core.experiment import Bar, Experiment, at_least
from rawduck.bench.core.results import Results
from rawduck.bench.experiments import grouping
from rawduck.errors import RawduckError
from rawduck.measuring.measure import QueryTask, Result
from rawduck.measuring.memory_cap import MemoryCap

_TITLES = {"sort": "external sort of every column", "wide": "wide aggregation by three keys"}
_CAPPED = "-capped"
#: DuckDB takes this share of a machine's memory by default, and a process needs some besides.
_DUCKDB_SHARE = 0.8
_PROCESS_BYTES = 256 * 1024**2
_WITH_LITTLE = modes.make(
    "volume_little",
    "rawduck, volume, 28 MiB for spilled blocks",
    modes.ON_VOLUME,
    extension_settings={"nvme_spill_buffer": "28 MiB"},
)
_NOT_AHEAD = modes.make(
    "volume_not_ahead",
    "rawduck, volume, nvme_prefetch = false",
    modes.ON_VOLUME,
    extension_settings={"nvme_prefetch": "false"},
)
_UNITS = {
    "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
    "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3, "TIB": 1024**4,
}  # fmt: skip


class Spill(Experiment):
    name = "spill"
    title = "Sorting and aggregating with little memory"
    text = (
        "lineitem, cold, is sorted by price, and grouped by supplier, part and order with any value of its "
        "other columns; the memory limit is a quarter of the database unless one is given. Temporary files "
        "go to the volume, or for stock to a folder on the same disk, where they may stay in the page cache, "
        "which no memory limit of DuckDB counts. So a volume takes a quarter of what is free for them. Each "
        "is measured twice: as it is, also with a volume that takes little for them, and as on a machine of "
        "which that limit is the 80 % that DuckDB takes by default, where a control group limits the memory "
        "of the process and its page cache together."
    )
    quick_scale = 0.2
    quick_runs = 3
    gib_per_scale = 3.0

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        self._database = self.bench.database(scale, "lineitem")
        self._database.prepare_stock()
        memory = self.bench.memory_limit(self._database)
        stock = [mode for mode in modes.stock() if mode.name in (modes.STOCK, "stock_prefetch")]
        ways = modes.with_config(
            [modes.ours()[0], _NOT_AHEAD, *stock], memory_limit=memory, threads=self.bench.options.threads
        )
        rows = self._rows()
        queries = {
            "sort": "SELECT * FROM lineitem ORDER BY l_extendedprice, l_orderkey, l_linenumber "
            f"OFFSET {rows - 1}",
            "wide": grouping.query(("l_suppkey", "l_partkey", "l_orderkey"), True, self._groups()),
        }
        little = modes.with_config([_WITH_LITTLE], memory_limit=memory, threads=self.bench.options.threads)
        for name, query in queries.items():
            yield self._case(
                name,
                _TITLES[name],
                scale,
                memory,
                query,
                ways + little,
                lambda task: self.bench.run_task(task),
            )
        try:
            cap = MemoryCap.find()
        except RawduckError as error:
            self.leave_out("the same with little page cache", str(error))
            return
        cap_bytes = int(memory_bytes(memory) / _DUCKDB_SHARE) + _PROCESS_BYTES
        for name, query in queries.items():
            yield self._case(
                name + _CAPPED,
                f"{_TITLES[name]}, memory and page cache {cap_bytes // 1024**2} MiB",
                scale, memory, query, ways,
                lambda task: self.bench.run_task(task, cap, cap_bytes),
            )  # fmt: skip

    def _case(
        self,
        name: str,
        title: str,
        scale: float,
        memory: str,
        query: str,
        ways: list[modes.DuckMode],
        run: Callable[[QueryTask], Result],
    ) -> Case:
        return Case(
            name,
            f"{title}, scale factor {scale:g}, memory limit {memory}",
            {"scale": scale, "query": query},
            list(ways),
            lambda mode: self._measure(mode, name, query, run),
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

    def _measure(self, mode: Mode, name: str, query: str, run: Callable[[QueryTask], Result]) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        measurement = Measurement.of(run(self.bench.query_task(mode, self._database, query)))
        if name.startswith("wide"):  # which group is left over is not determined
            measurement.rows = [(len(measurement.rows or []),)]
        return measurement

    def bars(self, results: Results) -> list[Bar]:
        bars = []
        for suffix, condition, bar in (("", "free page cache", 1.0), (_CAPPED, "little page cache", 1.3)):
            for name, title in _TITLES.items():
                case = results.case(name + suffix)
                ratio, p_value = results.compare(
                    case, results.mode(case, modes.VOLUME), results.mode(case, modes.STOCK), WALL
                )
                bars.append(at_least(f"{title} against stock default, {condition}", bar, ratio, p_value))
        return bars


def memory_bytes(text: str) -> int:
    """Bytes of a size as DuckDB's memory_limit takes it. Raises RawduckError for anything else."""
    found = re.fullmatch(r"([0-9.]+) *([KMGT]I?B)", text.strip(), re.IGNORECASE)
    if not found:
        raise RawduckError(f"a memory limit of {text} is not understood; write it like 512MiB or 2GB")
    return int(float(found[1]) * _UNITS[found[2].upper()])
