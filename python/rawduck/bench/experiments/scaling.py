"""`rawduck bench scaling`: a cold scan with 1 to 64 threads, and over 1 to 8 volumes at once."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

from rawduck import paths
from rawduck.bench.core import modes
from rawduck.bench.core.case import CPU, READ, WALL, Case, Measurement, Metric, Mode
from rawduck.bench.core.data import Volume, make_cold
from rawduck.bench.core.experiment import Experiment
from rawduck.bench.core.picture import Picture
from rawduck.bench.core.results import Results

_RATE = Metric("read_bytes_per_s", "MiB/s", 1024**2, ".0f")
_SUMS = "sum(l_orderkey), sum(l_partkey), sum(l_suppkey)"
_THREADS = (1, 2, 4, 8, 16, 32, 64)
_VOLUMES = (1, 2, 4, 8)
_QUICK_MOST = 4


class Scaling(Experiment):
    name = "scaling"
    title = "Threads and volumes"
    text = (
        "The narrow scan of lineitem, cold, with more and more threads, and over more and more volumes that "
        "hold a copy each, against as many files of stock DuckDB. Volumes in files of one disk share its "
        "bandwidth: what they show is that nothing is lost."
    )
    metrics = (WALL, CPU, READ, _RATE)
    quick_scale = 0.5

    def cases(self) -> Iterator[Case]:
        self._scale = self.bench.scale(self)
        self._database = self.bench.database(self._scale, "lineitem")
        for threads in self._steps(_THREADS):
            query = f"SELECT {_SUMS} FROM lineitem"
            yield Case(
                f"threads-{threads}",
                f"Threads: {threads}, scale factor {self._scale:g}",
                {"scale": self._scale, "query": query},
                modes.with_config(self._ways(), threads=threads),
                lambda mode, query=query: self._rated(self.bench.query(mode, self._database, query)),
                lambda: self._database.prepare_volume(self.bench.volume),
            )
        yield from self._volume_cases()

    def _volume_cases(self) -> Iterator[Case]:
        if not Path(self.bench.options.target).is_file():
            self.leave_out(
                "several volumes", "the target is a device; its volumes would be files on one disk"
            )
            return
        for count in self._steps(_VOLUMES):
            yield Case(
                f"volumes-{count}",
                f"Volumes: {count}, scale factor {self._scale:g} on each",
                {"scale": self._scale, "volumes": count},
                modes.with_config(self._ways(), threads=self.bench.options.threads),
                lambda mode, count=count: self._measure_volumes(mode, count),
                lambda count=count: self._prepare_volumes(count),
            )

    def _steps(self, steps: tuple[int, ...]) -> list[int]:
        return [step for step in steps if not self.bench.options.quick or step <= _QUICK_MOST]

    def _ways(self) -> list[modes.DuckMode]:
        stock = [mode for mode in modes.stock() if mode.name in (modes.STOCK, "stock_prefetch")]
        return [modes.ours()[0], *stock]

    def _rated(self, measurement: Measurement) -> Measurement:
        values = measurement.values
        values[_RATE.name] = values[READ.name] / values[WALL.name]
        return measurement

    def _prepare_volumes(self, count: int) -> None:
        self._database.prepare_volume(self.bench.volume)
        for number in range(2, count + 1):
            volume = self._volume(number)
            volume.copy(self._database.stock_path, volume.path(self._database.volume_name))
            if not self._stock_copy(number).exists():
                shutil.copyfile(self._database.stock_path, self._stock_copy(number))

    def _measure_volumes(self, mode: Mode, count: int) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        others, numbers = [], range(2, count + 1)
        for number in numbers:
            stock = self._stock_copy(number)
            make_cold(stock)
            on_volume = self._volume(number).path(self._database.volume_name)
            path = on_volume if mode.place == modes.ON_VOLUME else str(stock)
            others.append(f"ATTACH {paths.quote(path)} AS copy{number} (READ_ONLY)")
        tables = ["lineitem", *(f"copy{number}.lineitem" for number in numbers)]
        rows = " UNION ALL ".join(f"SELECT l_orderkey, l_partkey, l_suppkey FROM {table}" for table in tables)
        query = f"SELECT {_SUMS} FROM ({rows})"
        return self._rated(self.bench.query(mode, self._database, query, "; ".join(others)))

    def _volume(self, number: int) -> Volume:
        return self.bench.own_volume(number, 1 + math.ceil(self.gib_per_scale * self._scale))

    def _stock_copy(self, number: int) -> Path:
        return self.bench.scratch / f"copy{number}.duckdb"

    def plots(self, results: Results, folder: Path) -> list[Picture]:
        from rawduck.bench.core import plots

        drawn = []
        for what in ("threads", "volumes"):
            x = {case.name: float(case.name.split("-")[1]) for case in results.cases if what in case.name}
            if x:
                path = folder / f"scaling-{what}.png"
                drawn.append(plots.lines(results, path, _RATE, x, what, f"Cold narrow scan: {what}"))
        return drawn
