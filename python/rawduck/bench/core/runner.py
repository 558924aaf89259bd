"""Runs the cases of an experiment: modes take turns, answers are compared, what is there is not run again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import rawduck
from rawduck import render, tpch
from rawduck.bench.core.case import Case, Measurement, Mode
from rawduck.bench.core.experiment import Experiment
from rawduck.bench.core.results import Results, digest
from rawduck.measuring.interrupts import Interrupts

_ANSWERS_NAME = "answers.json"


class Runner:
    def __init__(
        self,
        experiment: Experiment,
        results: Results,
        runs: int,
        wants: Callable[[str], bool] = lambda case: True,
        wants_mode: Callable[[str], bool] = lambda mode: True,
        warm_memory: Callable[[], object] = lambda: None,
    ) -> None:
        """`wants`: whether the case of this name is to be run; `wants_mode`: the mode. `warm_memory`: called
        before each run of any mode."""
        self._experiment = experiment
        self._results = results
        self._runs = runs
        self._wants = wants
        self._wants_mode = wants_mode
        self._warm_memory = warm_memory
        self._answers = Answers(results)
        #: Names of optional modes that failed once: they are not tried again.
        self._impossible: set[str] = set()
        self._interrupts = Interrupts()

    def run(self) -> None:
        """Raises KeyboardInterrupt when somebody interrupted: what was measured until then is kept."""
        with self._interrupts, _progress() as progress:
            task = progress.add_task(self._experiment.name, total=None)
            # Closed whatever happens: what an experiment has started ends with its cases.
            with closing(self._experiment.cases()) as cases:
                for case in cases:
                    if not self._wants(case.name):
                        continue
                    self._results.cases.append(case)
                    progress.update(task, completed=0, total=len(self._modes(case)) * self._runs)
                    self._run_case(case, lambda text: progress.update(task, description=text, advance=1))

    def _run_case(self, case: Case, show: Callable[[str], None]) -> None:
        """Alternates between the modes, so that a slow minute of the disk meets all of them."""
        missing = [(mode, run) for run, mode in self._turns(case) if not self._results.has(case, mode, run)]
        if not missing:
            return
        start = time.perf_counter()
        case.prepare()
        self._try_out(case, {mode.name for mode, _ in missing})
        failed: set[str] = set()
        for mode, run in missing:
            if mode.name in self._impossible | failed:
                continue
            show(f"{self._experiment.name}: {case.title}, {mode.title}, run {run} of {self._runs}")
            if not self._measure(case, mode, run):
                failed.add(mode.name)
        if not render.error_console.is_terminal:
            took = render.seconds(time.perf_counter() - start)
            line = f"{self._experiment.name}: {case.title}: {len(missing)} runs in {took}"
            render.error_console.print(line, soft_wrap=True, markup=False)

    def _turns(self, case: Case) -> Iterator[tuple[int, Mode]]:
        """Every run of every mode; who goes first changes from run to run."""
        modes = self._modes(case)
        for run in range(1, self._runs + 1):
            first = (run - 1) % max(len(modes), 1)
            for mode in modes[first:] + modes[:first]:
                yield run, mode

    def _modes(self, case: Case) -> list[Mode]:
        return [mode for mode in case.modes if self._wants_mode(mode.name)]

    def _try_out(self, case: Case, names: set[str]) -> None:
        """A run of each mode that does not count, where the case wants it or the mode may be impossible."""
        for mode in case.modes:
            if mode.name not in names - self._impossible or not (case.warm_up or mode.optional):
                continue
            try:
                self._measure_one(case, mode)
            except rawduck.RawduckError as error:
                # Another mode's failure is met again, and written down, in its first run that counts.
                if mode.optional:
                    self._give_up(mode, error)

    def _give_up(self, mode: Mode, error: Exception) -> None:
        self._experiment.leave_out(mode.title, one_line(error))
        self._impossible.add(mode.name)

    def _measure(self, case: Case, mode: Mode, run: int) -> bool:
        """One run. What goes wrong is a row of its own; the next session tries again."""
        try:
            measurement = self._measure_one(case, mode)
        except rawduck.RawduckError as error:
            if mode.optional:  # whether it is possible may depend on chance, as where memory happens to lie
                self._give_up(mode, error)
            else:
                self._results.add(case, mode, run, None, one_line(error))
            return False
        try:
            self._answers.check(case, mode, measurement)
        except rawduck.RawduckError as error:
            self._results.add(case, mode, run, None, one_line(error))
            return False
        self._results.add(case, mode, run, measurement)
        return True

    def _measure_one(self, case: Case, mode: Mode) -> Measurement:
        try:
            self._warm_memory()
            return case.measure(mode)
        finally:
            self._interrupts.check()  # whatever became of it: what an interrupt has spoilt is no result


class Answers:
    """The first answer to each case, which every other must equal. Kept beside the results, to be resumed."""

    def __init__(self, results: Results) -> None:
        self._path = results.folder / _ANSWERS_NAME
        self._known: dict[str, dict[str, Any]] = {}
        if results.rows and self._path.exists():
            self._known = json.loads(self._path.read_text())

    def check(self, case: Case, mode: Mode, measurement: Measurement) -> None:
        if measurement.rows is None:
            return
        key = f"{case.name} {digest(case.settings)}"
        if key not in self._known:
            texts = [["" if value is None else str(value) for value in row] for row in measurement.rows]
            self._known[key] = {"from": mode.title, "rows": texts}
            self._path.write_text(json.dumps(self._known) + "\n")
            return
        first = self._known[key]
        wrong = tpch.difference(measurement.rows, first["rows"])
        if wrong:
            raise rawduck.RawduckError(f"{mode.title} answers differently from {first['from']}: {wrong}")


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=render.error_console,
        transient=True,
        disable=not render.error_console.is_terminal,
    )
