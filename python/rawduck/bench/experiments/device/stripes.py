"""`rawduck bench stripes`: what a volume on several drives gains, by the size of its chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import duckdb

import rawduck
from rawduck import paths, render, volumes
from rawduck.bench.core.case import QUERY_METRICS, WALL, Case, Kind, Measurement, Mode
from rawduck.bench.core.data import Database
from rawduck.bench.core.experiment import Bar, Experiment, at_least
from rawduck.bench.core.results import Results
from rawduck.errors import RawduckError
from rawduck.measuring.direct_reader import BLOCK_BYTES, read_ranges
from rawduck.measuring.measure import QueryTask
from rawduck.measuring.memory_cap import CappedTask
from rawduck.measuring.slow_drives import SlowDrives

_QUERY = "SELECT sum(l_orderkey), sum(l_partkey), sum(l_suppkey) FROM lineitem"
#: So slow that a processor has time left with several of them.
_DRIVE_BYTES_PER_SECOND = 25_000_000
#: After a pause the kernel lets a process read what it has saved up. It is read before the clock starts.
_SAVED_SECONDS = 0.3
_MIB = 1024**2
#: Of lineitem as DuckDB stores it, with room for a volume's own.
_MIB_PER_SCALE, _MIB_FOR_VOLUME = 300, 96
_DEFAULT_CHUNK = "256K"


@dataclass(frozen=True)
class Layout:
    drives: int
    chunk: str = _DEFAULT_CHUNK

    @property
    def mode(self) -> Mode:
        title = f"{self.drives} drives, chunks of {self.chunk}" if self.drives > 1 else "one drive"
        return Mode(self.name, title, Kind.OURS, {"drives": self.drives, "chunk": self.chunk})

    @property
    def name(self) -> str:
        return f"drives_{self.drives}" + ("" if self.chunk == _DEFAULT_CHUNK else f"_chunk_{self.chunk}")


_LAYOUTS = (Layout(1), Layout(2), Layout(4), Layout(4, "64K"), Layout(4, "1M"))


@dataclass
class EvenTask(QueryTask):
    """A query on drives whose speed is limited from its first byte on."""

    devices: tuple[str, ...] = ()
    saved_bytes: int = 0

    def open(self) -> duckdb.DuckDBPyConnection:
        connection = super().open()
        with ThreadPoolExecutor(len(self.devices)) as pool:
            list(pool.map(self._read, self.devices))
        return connection

    def _read(self, device: str) -> None:
        read_ranges(device, [(0, self.saved_bytes)], 4, BLOCK_BYTES)


class Stripes(Experiment):
    name = "stripes"
    title = "A volume on several drives"
    text = (
        "A cold narrow scan of lineitem on one, two and four drives, which are block devices over files, "
        f"and of which the kernel lets a process read {_DRIVE_BYTES_PER_SECOND // 10**6} MB a second each "
        "(a control group's limit). So this says what striping makes of drives of that speed, and by the "
        "chunk; it says nothing of the speed of a drive."
    )
    scale = 2.0
    quick_scale = 0.05
    gib_per_scale = 0.0
    metrics = QUERY_METRICS

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        try:
            self._slow_drives = SlowDrives.find()
        except RawduckError as error:
            self.leave_out("all of it: drives of a known speed", str(error))
            return
        self._devices: dict[str, list[str]] = {}
        with ExitStack() as stack:
            yield Case(
                "narrow",
                f"Narrow scan of lineitem, scale factor {scale:g}",
                {
                    "scale": scale,
                    "query": _QUERY,
                    "drive_bytes_per_second": _DRIVE_BYTES_PER_SECOND,
                    "threads": self.bench.options.threads,
                },
                [layout.mode for layout in _LAYOUTS],
                self._measure,
                lambda: self._prepare(self.bench.database(scale, "lineitem"), scale, stack),
            )

    def _prepare(self, database: Database, scale: float, stack: ExitStack) -> None:
        database.prepare_stock()
        whole = _MIB_FOR_VOLUME + math.ceil(_MIB_PER_SCALE * scale)
        for layout in _LAYOUTS:
            folder = self.bench.scratch / layout.name
            folder.mkdir()
            made = self._slow_drives.made(folder, layout.drives, whole * _MIB)
            devices = self._devices[layout.name] = stack.enter_context(made)
            _fill(layout, devices, database.stock_path)

    def _measure(self, mode: Mode) -> Measurement:
        devices = self._devices[mode.name]
        config = {"threads": self.bench.options.threads} if self.bench.options.threads else {}
        saved = int(_DRIVE_BYTES_PER_SECOND * _SAVED_SECONDS) // BLOCK_BYTES * BLOCK_BYTES
        task = EvenTask(_path(devices), True, config, query=_QUERY, devices=tuple(devices), saved_bytes=saved)
        with self._slow_drives.limited(devices, _DRIVE_BYTES_PER_SECOND) as group:
            return Measurement.of(self.bench.run_task(CappedTask(task, group)))

    def bars(self, results: Results) -> list[Bar]:
        case = results.case("narrow")
        one, four = (results.mode(case, Layout(drives).name) for drives in (1, 4))
        ratio, p_value = results.compare(case, four, one, WALL)
        return [at_least("narrow scan, four drives against one", 3.8, ratio, p_value)]


def _path(devices: list[str]) -> str:
    return paths.volume_path(devices[0], "lineitem.duckdb")


def _fill(layout: Layout, devices: list[str], source: Path) -> None:
    with rawduck.connect() as connection, render.error_console.status(f"Copying to {layout.mode.title} …"):
        several = {"stripe_with": devices[1:], "chunk": layout.chunk} if layout.drives > 1 else {}
        volumes.format_volume(connection, devices[0], **several)
        connection.execute("SELECT * FROM nvme_copy(?, ?)", [str(source), _path(devices)]).fetchall()
