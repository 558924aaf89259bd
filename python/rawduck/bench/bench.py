"""One run of `rawduck bench`: what its experiments share, and how each is run from data to report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rawduck import render, tpch
from rawduck.bench import machine, report
from rawduck.bench.data import Database, Volume
from rawduck.bench.experiment import Bar, Experiment, Measurement
from rawduck.bench.modes import ON_FILE, ON_FILE_DIRECTLY, ON_VOLUME, DuckMode
from rawduck.bench.options import Options
from rawduck.bench.results import Results
from rawduck.bench.runner import Runner
from rawduck.measure import QueryTask, Result, Task, Worker
from rawduck.paths import file_path


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

    def __init__(self, options: Options) -> None:
        self.options = options
        self.volume = Volume(options)

    def __enter__(self) -> Bench:
        for folder in (self.options.work_dir, self.options.stock_dir, self.options.out):
            folder.mkdir(parents=True, exist_ok=True)
        self._worker = Worker(fork=True).__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.__exit__()
        self.volume.clean_up()

    def run(self, kind: type[Experiment]) -> Outcome:
        """Measures what is missing and writes the report."""
        experiment = kind(self)
        # The machine is described anew each time: the target exists from the first experiment on.
        self.volume.prepare()
        description = machine.describe(self.options.target, self.options.stock_dir)
        results = Results(self.options.out / kind.name, kind.name, description, kind.metrics)
        results.open(self.options.resume, self.options.overwrite)
        Runner(experiment, results, self.runs(experiment)).run()
        bars = experiment.bars(results)
        path = report.write(experiment, results, bars, self.options)
        return Outcome(experiment, results, bars, path)

    def run_task(self, task: Task) -> Result:
        """Performs a task in a fresh process."""
        return self._worker.run(task)

    def scale(self, experiment: Experiment) -> float:
        chosen = self.options.scale
        default = experiment.quick_scale if self.options.quick else experiment.scale
        return default if chosen is None else chosen

    def runs(self, experiment: Experiment) -> int:
        default = experiment.quick_runs if self.options.quick else experiment.runs
        return self.options.runs or default

    def database(self, scale: float, *tables: str) -> Database:
        return Database(tables or tpch.TABLES, scale, self.options)

    def query(
        self, mode: DuckMode, database: Database, query: str, settings: dict[str, Any] | None = None
    ) -> Measurement:
        """Runs a query cold, in a fresh process."""
        database.make_cold()
        task = QueryTask(
            database_of(mode, database),
            mode.extension,
            dict(mode.config),
            mode.attach_options,
            dict(mode.engine) | (settings or {}),
            query=query,
        )
        return Measurement.of(self.run_task(task))

    def say(self, text: str) -> None:
        render.error_console.print(text, soft_wrap=True, markup=False)


def database_of(mode: DuckMode, database: Database) -> str:
    """The path under which a mode opens a database."""
    places = {
        ON_VOLUME: database.volume_path,
        ON_FILE_DIRECTLY: file_path(str(database.stock_path)),
        ON_FILE: str(database.stock_path),
    }
    return places[mode.place]
