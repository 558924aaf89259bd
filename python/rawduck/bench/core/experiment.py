"""What an experiment is: its cases, what it expects to show, and what it draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rawduck.bench.core.case import QUERY_METRICS, WALL, Case, Metric

if TYPE_CHECKING:
    from rich.table import Table

    from rawduck.bench.core.bench import Bench
    from rawduck.bench.core.picture import Picture
    from rawduck.bench.core.results import Results


@dataclass(frozen=True)
class Bar:
    """What an experiment is expected to show. `reached` is None where it could not be measured."""

    work: str
    wanted: str
    reached: float | None
    met: bool
    #: Of a paired t-test that the difference has this direction; None where the bar is no comparison of runs.
    p_value: float | None = None
    format: str = ".2f"


def at_least(
    work: str, wanted: float, reached: float | None, p: float | None = None, show: str = ".2f"
) -> Bar:
    return Bar(work, f"≥ {wanted:{show}}", reached, reached is not None and reached >= wanted, p, show)


def at_most(
    work: str, wanted: float, reached: float | None, p: float | None = None, show: str = ".2f"
) -> Bar:
    return Bar(work, f"≤ {wanted:{show}}", reached, reached is not None and reached <= wanted, p, show)


class Experiment:
    """Base of all experiments. One object per run of `rawduck bench`."""

    name: str
    title: str
    #: What is measured and how, for the report.
    text: str
    #: Scale factor and number of runs, as they are and with --quick.
    scale = 5.0
    quick_scale = 1.0
    runs = 7
    quick_runs = 3
    #: Room that it needs on the volume, by scale factor; the copies of its databases by default.
    gib_per_scale = 0.5
    metrics: tuple[Metric, ...] = QUERY_METRICS
    #: The metric that the modes are compared by.
    main_metric: Metric = WALL
    #: Whether a smaller value of it is the better one.
    smaller_is_better = True

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        #: What could not be measured here, and why.
        self.left_out: list[tuple[str, str]] = []

    def leave_out(self, what: str, why: str) -> None:
        if (what, why) not in self.left_out:
            self.left_out.append((what, why))

    def cases(self) -> Iterator[Case]:
        """A generator. It is closed however the run ends, and takes down then what it has started."""
        raise NotImplementedError

    def bars(self, results: Results) -> list[Bar]:
        """Judged on complete results; cases and modes that were left out are missing in them."""
        return []

    def notes(self, results: Results) -> list[str]:
        """Paragraphs or tables of Markdown for the report, after the bars."""
        return []

    def tables(self, results: Results) -> Iterable[Table]:
        """What the command prints beside the bars."""
        return ()

    def plots(self, results: Results, folder: Path) -> list[Picture]:
        """Draws into the folder. Called only where matplotlib is installed."""
        from rawduck.bench.core import plots

        return plots.bars_per_case(results, folder, self.main_metric)
