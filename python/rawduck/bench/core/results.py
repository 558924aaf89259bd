"""The results of one experiment: a CSV file with one row per run, and the configurations that it joins to.

`results.csv` has a column `configuration`, the hash of everything that the row's numbers depend on:
experiment, case, mode, and machine with its versions. `configurations.json` has what each hash stands for. So
results can be continued later and elsewhere without mixing what does not belong together.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rawduck.bench.core import stats
from rawduck.bench.core.case import Case, Kind, Measurement, Metric, Mode
from rawduck.errors import RawduckError

CSV_NAME = "results.csv"
CONFIGURATIONS_NAME = "configurations.json"
_KEYS = ("configuration", "case", "mode", "run", "time_utc")
_HASH_DIGITS = 12


def digest(description: Any) -> str:
    """The hash of plain data: equal for equal content, whatever the order of its keys."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


@dataclass
class Row:
    configuration: str
    case: str
    mode: str
    run: int
    time_utc: str
    values: dict[str, float]
    error: str = ""


@dataclass
class Results:
    """Rows of this session's configurations, with those of earlier sessions where they are the same."""

    folder: Path
    experiment: str
    machine: dict[str, Any]
    metrics: tuple[Metric, ...]
    cases: list[Case] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    _configurations: dict[str, dict[str, Any]] = field(default_factory=dict)
    _machines: dict[str, Any] = field(default_factory=dict)

    @property
    def csv_path(self) -> Path:
        return self.folder / CSV_NAME

    def configuration(self, case: Case, mode: Mode) -> str:
        """The hash for a mode of a case."""
        return digest(self._description(case, mode))

    def _description(self, case: Case, mode: Mode) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "case": {"name": case.name, **case.settings},
            "mode": {"name": mode.name, **mode.settings},
            "machine": digest(self.machine),
        }

    def _write_configuration(self, key: str, case: Case, mode: Mode) -> None:
        self._configurations[key] = self._description(case, mode)
        self._machines[digest(self.machine)] = self.machine
        content = {"machines": self._machines, "configurations": self._configurations}
        path = self.folder / CONFIGURATIONS_NAME
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(content, indent=1, sort_keys=True, default=str) + "\n")
        beside.replace(path)

    def open(self, resume: bool, overwrite: bool) -> None:
        """Reads what is there, or begins anew. Results of earlier runs are never lost unasked."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not resume and not overwrite and self._has_rows():
            raise RawduckError(
                f"{self.folder} has results already: continue them with --resume, replace them with "
                "--overwrite, or name another folder with --out"
            )
        if self.csv_path.exists() and resume:
            self._read()
        self._write()

    def _has_rows(self) -> bool:
        """Whether there are more lines than the header."""
        return self.csv_path.exists() and len(self.csv_path.read_text().splitlines()) > 1

    def _read(self) -> None:
        configurations = self.folder / CONFIGURATIONS_NAME
        if configurations.exists():
            content = json.loads(configurations.read_text())
            self._configurations, self._machines = content["configurations"], content["machines"]
        with self.csv_path.open(newline="") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != self._header:
                raise RawduckError(
                    f"{self.csv_path} has other columns than this version writes; name another folder "
                    "with --out"
                )
            # A line without its end was being written when the last session died.
            complete = [row for row in reader if None not in row.values()]
        self.rows = [self._row(row) for row in complete]

    def _write(self) -> None:
        beside = self.csv_path.with_suffix(".new")
        with beside.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(self._header)
            writer.writerows(self._cells(row) for row in self.rows)
        beside.replace(self.csv_path)

    @property
    def _header(self) -> list[str]:
        return [*_KEYS, *(metric.name for metric in self.metrics), "error"]

    def _row(self, row: dict[str, str]) -> Row:
        values = {metric.name: float(row[metric.name]) for metric in self.metrics if row[metric.name]}
        keys = (row["configuration"], row["case"], row["mode"], int(row["run"]), row["time_utc"])
        return Row(*keys, values, row["error"])

    def _cells(self, row: Row) -> list[Any]:
        values = [f"{row.values[m.name]:.9g}" if m.name in row.values else "" for m in self.metrics]
        return [row.configuration, row.case, row.mode, row.run, row.time_utc, *values, row.error]

    def add(self, case: Case, mode: Mode, run: int, measurement: Measurement | None, error: str = "") -> None:
        """Appends a run; it is in the file when this returns."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        values = measurement.values if measurement else {}
        key = self.configuration(case, mode)
        if key not in self._configurations:
            self._write_configuration(key, case, mode)
        row = Row(key, case.name, mode.name, run, now, values, error)
        self.rows.append(row)
        with self.csv_path.open("a", newline="") as file:
            csv.writer(file).writerow(self._cells(row))

    def has(self, case: Case, mode: Mode, run: int) -> bool:
        key = self.configuration(case, mode)
        return any(row.configuration == key and row.run == run and not row.error for row in self.rows)

    def failures(self) -> list[Row]:
        """Runs that went wrong and were not repeated with success."""
        good = {(row.configuration, row.run) for row in self.rows if not row.error}
        return [row for row in self.rows if row.error and (row.configuration, row.run) not in good]

    # What reports, bars and plots ask for. Only rows of this session's configurations count.

    def series(self, case: Case, mode: Mode, metric: Metric) -> dict[int, float]:
        """Values by run number."""
        key = self.configuration(case, mode)
        good = [row for row in self.rows if row.configuration == key and not row.error]
        return {row.run: row.values[metric.name] for row in good if metric.name in row.values}

    def median(self, case: Case, mode: Mode, metric: Metric) -> float | None:
        values = self.series(case, mode, metric)
        return stats.median(list(values.values())) if values else None

    def case(self, name: str) -> Case | None:
        return next((case for case in self.cases if case.name == name), None)

    def modes(self, case: Case, kind: Kind | None = None) -> list[Mode]:
        """The modes of a case that have results."""
        wanted = [mode for mode in case.modes if kind is None or mode.kind is kind]
        return [mode for mode in wanted if self._has_any(case, mode)]

    def _has_any(self, case: Case, mode: Mode) -> bool:
        key = self.configuration(case, mode)
        return any(row.configuration == key and not row.error for row in self.rows)

    def mode(self, case: Case | None, name: str) -> Mode | None:
        """A mode by name, if it has results."""
        found = self.modes(case) if case else []
        return next((mode for mode in found if mode.name == name), None)

    def best(self, case: Case | None, metric: Metric, kind: Kind = Kind.STOCK) -> Mode | None:
        """The mode of a kind with the smallest median."""
        found = self.modes(case, kind) if case else []
        return min(found, key=lambda mode: self.median(case, mode, metric), default=None)

    def compare(
        self, case: Case | None, ours: Mode | None, other: Mode | None, metric: Metric
    ) -> tuple[float | None, float | None]:
        """Median of the other over median of ours, and the p-value that ours is smaller."""
        if not (case and ours and other):
            return None, None
        mine, others = self.series(case, ours, metric), self.series(case, other, metric)
        pairs = sorted(mine.keys() & others.keys())
        p_value = stats.paired_t_test([mine[run] for run in pairs], [others[run] for run in pairs])
        own, theirs = self.median(case, ours, metric), self.median(case, other, metric)
        return (theirs / own if own and theirs is not None else None), p_value
