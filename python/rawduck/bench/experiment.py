"""What an experiment is made of: cases, the modes that take turns in each, metrics, bars and plots."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rawduck.measure import Result

if TYPE_CHECKING:
    from rich.table import Table

    from rawduck.bench.bench import Bench
    from rawduck.bench.results import Results


class Kind(enum.Enum):
    """Whose work a mode is."""

    OURS = "ours"
    STOCK = "stock"
    YARDSTICK = "yardstick"


@dataclass(frozen=True)
class Metric:
    """A column of the results. `divide` and `format` say how a report shows it."""

    name: str
    title: str
    divide: float = 1
    format: str = ".3f"

    def text(self, value: float) -> str:
        return format(value / self.divide, self.format)


WALL = Metric("wall_s", "wall s")
CPU = Metric("cpu_s", "CPU s")
KERNEL = Metric("kernel_cpu_s", "of it in the kernel")
READ = Metric("read_bytes", "MiB read", 1024**2, ".0f")
WRITTEN = Metric("written_bytes", "MiB written", 1024**2, ".0f")
COPIED = Metric("copied_bytes", "MiB copied", 1024**2, ".0f")
FAULTS = Metric("page_faults", "page faults", 1, ",.0f")
SYSTEM_CALLS = Metric("system_calls", "system calls", 1, ",.0f")
#: What every run of a query yields.
QUERY_METRICS = (WALL, CPU, KERNEL, READ, WRITTEN, COPIED, FAULTS, SYSTEM_CALLS)


@dataclass(frozen=True)
class Mode:
    """A way to do the work of a case."""

    name: str
    title: str
    kind: Kind
    #: All that makes this way differ from others: part of the configuration.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: A mode that may be impossible here: when its first run fails it is left out, with the reason.
    optional: bool = False


@dataclass
class Measurement:
    """One run: values by the names of metrics, and the answer, where there is one to compare."""

    values: dict[str, float]
    rows: list[tuple] | None = None

    @staticmethod
    def of(result: Result) -> Measurement:
        counted = {} if result.system_calls is None else {SYSTEM_CALLS.name: result.system_calls}
        values = {
            WALL.name: result.wall_seconds,
            CPU.name: result.cpu_seconds,
            KERNEL.name: result.kernel_seconds,
            READ.name: result.device_bytes,
            WRITTEN.name: result.written_bytes,
            COPIED.name: result.bounce_bytes,
            FAULTS.name: result.page_faults,
            **counted,
            **result.values,
        }
        return Measurement(values, result.rows or None)


@dataclass
class Case:
    """One workload. Its modes take turns, and all of them must give the same answer."""

    name: str
    title: str
    #: All that makes this workload differ from others: part of the configuration.
    settings: dict[str, Any]
    modes: list[Mode]
    measure: Callable[[Mode], Measurement]
    #: Called once before the first run that is not there yet.
    prepare: Callable[[], None] = lambda: None
    #: Whether every mode runs once before the runs that count: the disk and the processor wake up.
    warm_up: bool = True


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

    def plots(self, results: Results, folder: Path) -> list[Path]:
        """Draws into the folder. Called only where matplotlib is installed."""
        from rawduck.bench import plots

        return plots.bars_per_case(results, folder, self.main_metric)
