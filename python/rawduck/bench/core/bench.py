"""One run of `rawduck bench`: what its experiments share, and how each is run from data to report."""

from __future__ import annotations

import fcntl
import math
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rawduck import paths, render, tpch
from rawduck.bench.core import machine, report
from rawduck.bench.core.case import Measurement
from rawduck.bench.core.data import Database, Volume
from rawduck.bench.core.experiment import Bar, Experiment
from rawduck.bench.core.modes import ON_FILE, ON_FILE_DIRECTLY, ON_VOLUME, DuckMode
from rawduck.bench.core.options import Options
from rawduck.bench.core.results import Results
from rawduck.bench.core.runner import Runner
from rawduck.errors import RawduckError
from rawduck.measuring import warm_memory
from rawduck.measuring.measure import QueryTask, Result, Session, Task, Worker
from rawduck.measuring.memory_cap import CappedTask, MemoryCap
from rawduck.paths import direct_path

_LEAST_MEMORY_MIB = 128
_LEAST_GIB = 1
#: Touched before each run: about as much as a database of TPC-H has, by its scale factor.
_WARM_MIB_PER_SCALE = 512
_LOCK_NAME = "bench.lock"
#: nvme_random_reads(), which users do not get (CONTRIBUTING.md).
_TEST_FUNCTIONS = {"RAWDUCK_TEST_FUNCTIONS": "1"}


@dataclass
class Outcome:
    """How an experiment ended."""

    experiment: Experiment
    results: Results
    bars: list[Bar]
    report: Path

    @property
    def failed(self) -> bool:
        return bool(self.results.failures())


class Bench:
    """A context manager: what was put on the target goes away at its end."""

    def __init__(self, kinds: list[type[Experiment]], options: Options) -> None:
        self.options = options
        self._kinds = kinds
        needs = [kind.gib_per_scale * self.scale(kind) for kind in kinds]
        self.volume = Volume(options.target, options, _LEAST_GIB + math.ceil(max(needs)))
        self._own_volumes: dict[int, Volume] = {}

    def __enter__(self) -> Bench:
        paths.make_folder(self.options.work_dir, "--work-dir")
        paths.make_folder(self.options.stock_dir, "--stock-dir")
        paths.make_folder(self.options.out, "--out")
        self._lock = self._lock_work_dir()
        #: For stock DuckDB's databases and temporary files that live no longer than this.
        self.scratch = Path(tempfile.mkdtemp(prefix="rawduck-bench-", dir=self.options.stock_dir))
        self._worker = Worker(fork=True, environment=_TEST_FUNCTIONS).__enter__()
        return self

    def _lock_work_dir(self) -> TextIO:
        """Two sessions would remove each other's volume. The lock ends with the process, whatever ends it."""
        lock = (self.options.work_dir / _LOCK_NAME).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise RawduckError(
                f"another rawduck bench works in {self.options.work_dir}; wait for it, or name another "
                "folder with --work-dir"
            ) from None
        return lock

    def __exit__(self, *error: object) -> None:
        self._worker.__exit__(*error)
        shutil.rmtree(self.scratch)
        for volume in (self.volume, *self._own_volumes.values()):
            volume.clean_up()
        self._lock.close()

    def run_all(self) -> Iterator[Outcome]:
        return map(self._run, self._kinds)

    def _run(self, kind: type[Experiment]) -> Outcome:
        """Measures what is missing and writes the report."""
        experiment, results = self.measure(kind)
        # So little data shows nothing: it tells whether the experiment runs.
        bars = [] if self.options.quick else experiment.bars(results)
        path = report.write(experiment, results, bars, self.options)
        return Outcome(experiment, results, bars, path)

    def measure(self, kind: type[Experiment]) -> tuple[Experiment, Results]:
        """Measures what is missing, without a report."""
        experiment = kind(self)
        warmed_mib = 0 if self.options.cold_memory else self._warmed_mib(kind)
        description = machine.describe(self.options.target, self.options.stock_dir)
        description["warmed_mib"] = warmed_mib
        results = Results(self.options.out / kind.name, kind.name, description, kind.metrics)
        # Before anything is formatted: it may refuse.
        results.open(self.options.resume, self.options.overwrite)
        self.volume.prepare()
        Runner(
            experiment,
            results,
            self.runs(experiment),
            self.options.wants,
            self.options.wants_mode,
            lambda: warm_memory.touch(warmed_mib),
        ).run()
        return experiment, results

    def _warmed_mib(self, kind: type[Experiment]) -> int:
        return min(int(_WARM_MIB_PER_SCALE * self.scale(kind)), warm_memory.most_mib())

    def new_database(self, mode: DuckMode, name: str) -> str:
        """The path of a database that a mode may create; one of this name is gone."""
        self.remove_database(mode, name)
        if mode.place != ON_VOLUME:
            path = str(self.scratch / name)
            return direct_path(path) if mode.place == ON_FILE_DIRECTLY else path
        self.volume.will_make(self.volume.path(name))
        return self.volume.path(name)

    def remove_database(self, mode: DuckMode, name: str) -> None:
        if mode.place == ON_VOLUME:
            self.volume.remove(self.volume.path(name))
            return
        for path in (self.scratch / name, self.scratch / f"{name}.wal"):
            path.unlink(missing_ok=True)

    def own_volume(self, number: int, gib: int) -> Volume:
        """Another volume in a file of the benchmark's own, beside the first."""
        if number not in self._own_volumes:
            target = str(self.options.own_target_path(number))
            self._own_volumes[number] = Volume(target, self.options, gib)
        return self._own_volumes[number]

    def run_task(self, task: Task, cap: MemoryCap | None = None, cap_bytes: int = 0) -> Result:
        """Performs a task in a fresh process, with `cap` of no more memory and page cache than that."""
        if cap is None:
            return self._worker.run(task)
        with cap.group(cap_bytes) as group:
            return self._worker.run(CappedTask(task, group))

    def tpch_queries(self, experiment: Experiment, scale: float) -> dict[int, str]:
        """The queries by number. None, and the report says why, without DuckDB's source release, which is
        downloaded where it is missing."""
        options = self.options
        try:
            source = options.duckdb_source or tpch.fetched_source(options.work_dir)
            reference = tpch.Reference(source, scale)
        except RawduckError as error:
            experiment.leave_out("the queries of TPC-H", str(error))
            return {}
        return {number: reference.query(number) for number in tpch.QUERY_NUMBERS}

    def scale(self, experiment: Experiment | type[Experiment]) -> float:
        chosen = self.options.scale
        default = experiment.quick_scale if self.options.quick else experiment.scale
        return default if chosen is None else chosen

    def runs(self, experiment: Experiment) -> int:
        default = experiment.quick_runs if self.options.quick else experiment.runs
        return self.options.runs or default

    def database(self, scale: float, *tables: str) -> Database:
        return Database(tables or tpch.TABLES, scale, self.options)

    def query(self, mode: DuckMode, database: Database, query: str, before: str = "") -> Measurement:
        """Runs a query cold, in a fresh process. What it spills goes to the disk of its database."""
        return Measurement.of(self.run_task(self.query_task(mode, database, query, before)))

    def query_task(self, mode: DuckMode, database: Database, query: str, before: str = "") -> QueryTask:
        """A query on a database that is cold now."""
        database.make_cold()
        session = self.session(mode, database_of(mode, database))
        return QueryTask(**vars(session), query=query, before=before)

    def session(self, mode: DuckMode, database: str) -> Session:
        """How a mode opens a database."""
        settings = dict(mode.extension_settings) | {"temp_directory": self.temp_directory(mode)}
        return Session(database, mode.extension, dict(mode.config), mode.attach_options, settings)

    def temp_directory(self, mode: DuckMode) -> str:
        if mode.place == ON_VOLUME:
            return self.volume.path("bench-tmp")
        return str(self.scratch / "tmp")

    def memory_limit(self, database: Database) -> str:
        """What was chosen, or a quarter of the database, at least what small ones need to work at all."""
        quarter = database.stock_path.stat().st_size // 4 // 1024**2
        return self.options.memory_limit or f"{max(_LEAST_MEMORY_MIB, quarter)}MiB"

    def say(self, text: str) -> None:
        render.error_console.print(text, soft_wrap=True, markup=False)


def database_of(mode: DuckMode, database: Database) -> str:
    """The path under which a mode opens a database."""
    places = {
        ON_VOLUME: database.volume_path,
        ON_FILE_DIRECTLY: direct_path(str(database.stock_path)),
        ON_FILE: str(database.stock_path),
    }
    return places[mode.place]
