"""`rawduck bench parquet`: one query over many Parquet files, through direct:// and by stock DuckDB."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from rawduck import tpch
from rawduck.bench.core import modes
from rawduck.bench.core.case import QUERY_METRICS, WALL, Case, Measurement, Mode
from rawduck.bench.core.data import make_cold
from rawduck.bench.core.experiment import Bar, Experiment, at_least
from rawduck.bench.core.results import Results
from rawduck.measuring.measure import Result, Session, Stopwatch
from rawduck.paths import direct_path, quote

_TABLE = "lineitem"
_FILES = 200
_QUERY = """
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice * (1 - l_discount)), count(*)
FROM read_parquet({files}) WHERE l_shipdate <= DATE '1998-09-02' GROUP BY ALL ORDER BY ALL
"""


@dataclass
class FilesTask(Session):
    """A query on files; no database is attached."""

    query: str = ""

    def perform(self) -> Result:
        with self.connect() as connection, Stopwatch() as watch:
            rows = connection.execute(self.query).fetchall()
        return watch.result(rows=rows)


class Parquet(Experiment):
    name = "parquet"
    title = "Many Parquet files"
    text = (
        f"The table lineitem as {_FILES} Parquet files, at scale factor 2 of about 2 MB each: a query with "
        "filter and aggregation over all of them, named by a pattern. Cold: none of a file is in the page "
        "cache. Cached: all of it is. Files of up to 4 MiB direct:// reads through the page cache, too."
    )
    scale = 2.0
    quick_scale = 0.5
    gib_per_scale = 0.0
    metrics = QUERY_METRICS

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        for name, title in (("cold", "cold"), ("cached", "in the page cache")):
            yield Case(
                name,
                f"{_FILES} Parquet files of lineitem, scale factor {scale:g}, {title}",
                {"scale": scale, "files": _FILES, "query": _QUERY},
                modes.with_config(
                    [
                        modes.make(modes.DIRECT, "rawduck, direct://", modes.ON_FILE_DIRECTLY),
                        modes.make(modes.STOCK, "stock, default"),
                    ],
                    threads=self.bench.options.threads,
                    memory_limit=self.bench.options.memory_limit,
                ),
                lambda mode, cold=name == "cold": self._measure(mode, cold),
                lambda: self._prepare(scale),
                warm_up=False,
            )

    @property
    def _folder(self) -> Path:
        return self.bench.scratch / "parquet"

    def _prepare(self, scale: float) -> None:
        if self._folder.exists():
            return
        database = self.bench.database(scale, _TABLE)
        database.generate()
        beside = self._folder.with_suffix(".writing")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        with duckdb.connect() as connection:
            connection.execute("SET enable_progress_bar = false")
            connection.execute(tpch.load_statement(database.parquet, _TABLE))
            rows = connection.execute(f"SELECT count(*) FROM {_TABLE}").fetchone()[0]
            for number in range(_FILES):
                first, end = rows * number // _FILES, rows * (number + 1) // _FILES
                part = f"SELECT * FROM {_TABLE} WHERE rowid >= {first} AND rowid < {end}"
                path = quote(str(beside / f"{number:03}.parquet"))
                connection.execute(f"COPY ({part}) TO {path} (FORMAT parquet)")
        beside.rename(self._folder)

    def _measure(self, mode: Mode, cold: bool) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        for path in sorted(self._folder.iterdir()):
            if cold:
                make_cold(path)
            else:
                path.read_bytes()
        pattern = str(self._folder / "*.parquet")
        files = direct_path(pattern) if mode.place == modes.ON_FILE_DIRECTLY else pattern
        session = self.bench.session(mode, "")
        task = FilesTask(**vars(session), query=_QUERY.format(files=quote(files)))
        return Measurement.of(self.bench.run_task(task))

    def bars(self, results: Results) -> list[Bar]:
        bars = []
        for case in results.cases:
            ours, stock = results.mode(case, modes.DIRECT), results.mode(case, modes.STOCK)
            ratio, p_value = results.compare(case, ours, stock, WALL)
            work = f"many Parquet files through direct://, {case.name}, against stock"
            bars.append(at_least(work, 1.0, ratio, p_value))
        return bars
