"""A case, the modes that take turns in it, and what is measured of each run."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rawduck.measuring.measure import Result


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
