"""The scan benchmark: how fast cold data gets into DuckDB, by every way there is."""

from __future__ import annotations

import csv
import math
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

import rawduck
from rawduck import cold, direct_reader, paths, render, tpch, volumes
from rawduck.measure import QueryTask, ReadTask, Result, run_alone

DATABASE = "scan.duckdb"
MIB = 1024**2

SCANS = {
    "narrow": "SELECT sum(l_orderkey), sum(l_partkey), sum(l_suppkey) FROM lineitem",
    "wide": "SELECT sum(l_orderkey), sum(l_partkey), sum(l_suppkey), sum(l_linenumber), sum(l_quantity), "
    "sum(l_extendedprice), sum(l_discount), sum(l_tax), max(l_shipdate), sum(strlen(l_comment)) "
    "FROM lineitem",
}
SCAN_TITLES = {
    "narrow": "Narrow scan: three integer columns (bound by I/O)",
    "wide": "Wide scan: ten columns, text among them",
}


@dataclass
class Settings:
    target: str
    stock: Path
    scale: float
    runs: int
    work_dir: Path
    format: bool
    force: bool
    out: Path | None

    @property
    def volume_database(self) -> str:
        return paths.volume_path(self.target, DATABASE)


@dataclass(frozen=True)
class Mode:
    """A way to read the database."""

    name: str
    title: str
    extension: bool
    on_volume: bool = False
    config: tuple[tuple[str, Any], ...] = ()
    attach_options: str = "READ_ONLY"

    def task(self, settings: Settings, query: str) -> QueryTask:
        if self.on_volume:
            database = settings.volume_database
        else:
            database = paths.file_path(str(settings.stock)) if self.extension else str(settings.stock)
        return QueryTask(database, query, self.extension, dict(self.config), self.attach_options)


_PREFETCH = ("storage_block_prefetch", "ALWAYS_PREFETCH")
DEVICE = "device"
STOCK = "stock"


def modes() -> list[Mode]:
    # A quarter of the machine's memory, at least 256 MiB: more than any of the scans needs.
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    allocator = ("block_allocator_memory", f"{max(256, physical // 4 // 1024**2)}MiB")
    return [
        Mode("volume", "rawduck, volume", True, on_volume=True),
        Mode(
            "volume_allocator",
            "rawduck, volume + block allocator",
            True,
            on_volume=True,
            config=(allocator,),
        ),
        Mode("file", "rawduck, file mode", True),
        Mode(STOCK, "stock, default", False),
        Mode("stock_prefetch", "stock, ALWAYS_PREFETCH", False, config=(_PREFETCH,)),
        Mode("stock_tuned", "stock, ALWAYS_PREFETCH + block allocator", False, config=(_PREFETCH, allocator)),
        Mode("stock_mmap", "stock, MMAP", False, attach_options="READ_ONLY, IO_MODE 'MMAP'"),
    ]


@dataclass
class Series:
    """All runs of one mode for one scan."""

    results: list[Result] = field(default_factory=list)

    def wall_median(self) -> float:
        return statistics.median(result.wall_seconds for result in self.results)

    def wall_min(self) -> float:
        return min(result.wall_seconds for result in self.results)

    def cpu_median(self) -> float:
        return statistics.median(result.cpu_seconds for result in self.results)

    def bytes_median(self) -> float:
        return statistics.median(result.device_bytes for result in self.results)

    def bounce_median(self) -> float:
        return statistics.median(result.bounce_bytes for result in self.results)


Measurements = dict[str, dict[str, Series]]


def run(settings: Settings) -> None:
    prepare_stock(settings)
    ranges = prepare_volume(settings)
    measurements = measure(settings, ranges)
    for scan, series in measurements.items():
        _print_scan(scan, series)
    if settings.out:
        write_csv(settings.out, settings.scale, measurements)
        render.console.print(f"\nEvery measurement is in {settings.out}")


def prepare_stock(settings: Settings) -> None:
    """An ordinary DuckDB file with lineitem; one that was made for this scale factor before is used again."""
    if settings.stock.exists():
        if _made_for(settings.stock) == settings.scale:
            return
        if not settings.force:
            raise rawduck.RawduckError(
                f"{settings.stock} exists and was not made by this benchmark at scale factor "
                f"{settings.scale:g}; name another file, or replace it with --force"
            )
        settings.stock.unlink()
    data = settings.work_dir / f"lineitem-sf{settings.scale:g}"
    with render.console.status(f"Generating lineitem at scale factor {settings.scale:g} …"):
        tpch.generate(data, settings.scale, ("lineitem",))
    with (
        render.console.status(f"Loading {settings.stock} …"),
        duckdb.connect(str(settings.stock)) as connection,
    ):
        connection.execute("SET enable_progress_bar = false")
        connection.execute(tpch.load_statement(data, "lineitem"))
        connection.execute("CREATE TABLE rawduck_bench AS SELECT ? AS scale", [settings.scale])


def _made_for(stock: Path) -> float | None:
    """The scale factor of an earlier run's file; None for anything else."""
    try:
        with duckdb.connect(str(stock), read_only=True) as connection:
            return float(connection.execute("SELECT scale FROM rawduck_bench").fetchone()[0])
    except duckdb.Error:
        return None


def prepare_volume(settings: Settings) -> list[tuple[int, int]]:
    """Copies the stock file onto the volume, byte for byte. Returns where it lies on the target."""
    target = settings.target
    with rawduck.connect() as connection, render.console.status(f"Copying it to {target} …"):
        if settings.format or not Path(target).exists():
            options = {"force": settings.force}
            if not Path(target).is_block_device():
                options["size"] = f"{1 + math.ceil(2 * settings.stock.stat().st_size / 1024**3)}G"
            volumes.format_volume(connection, target, **options)
        copy = "SELECT * FROM nvme_copy(?, ?, overwrite := true)"
        connection.execute(copy, [str(settings.stock), settings.volume_database]).fetchall()
        info = volumes.volume_info(connection, target)
        files = volumes.volume_files(connection, target)
    _print_conditions(settings, info)
    database = next(file for file in files if file["name"] == DATABASE)
    return volumes.byte_ranges(database, info["lba_size"])


def _print_conditions(settings: Settings, info: render.Row) -> None:
    size = render.size(settings.stock.stat().st_size)
    pairs = [
        (
            "data",
            f"lineitem at scale factor {settings.scale:g}, {size}, the same bytes in both",
        ),
        ("volume", f"{settings.target}, {info['engine']}, {info['queue_mode']}, depth {info['queue_depth']}"),
        ("stock file", str(settings.stock)),
        ("DuckDB", f"{duckdb.__version__}, {settings.runs} cold runs, each in a process of its own"),
    ]
    render.console.print(render.fields(pairs))


def measure(settings: Settings, ranges: list[tuple[int, int]]) -> Measurements:
    """Alternates between the modes, so that a slow minute of the disk meets all of them."""
    all_modes = modes()
    measurements: Measurements = {}
    with render.console.status("") as status:
        for scan, query in SCANS.items():
            status.update(f"{SCAN_TITLES[scan]}: first run, not counted …")
            series = {mode.name: Series() for mode in all_modes} | {DEVICE: Series()}
            wanted_bytes, answer = _first_run(settings, all_modes, query)
            reading = _device_task(settings, ranges, wanted_bytes)
            for run_number in range(settings.runs):
                status.update(f"{SCAN_TITLES[scan]}: run {run_number + 1} of {settings.runs} …")
                for mode in _rotated(all_modes, run_number):
                    series[mode.name].results.append(_run_mode(settings, mode, query, answer))
                series[DEVICE].results.append(run_alone(reading))
            measurements[scan] = series
    return measurements


def _first_run(settings: Settings, all_modes: list[Mode], query: str) -> tuple[int, list[tuple]]:
    """Learns how many bytes the scan needs and what its answer is."""
    stock = next(mode for mode in all_modes if mode.name == STOCK)
    answer = _run_mode(settings, stock, query, None).rows
    return _run_mode(settings, all_modes[0], query, answer).bytes_read, answer


def _device_task(settings: Settings, ranges: list[tuple[int, int]], wanted_bytes: int) -> ReadTask:
    taken = direct_reader.take(ranges, wanted_bytes)
    return ReadTask(settings.target, taken, direct_reader.DEPTH, direct_reader.BLOCK_BYTES)


def _run_mode(settings: Settings, mode: Mode, query: str, answer: list[tuple] | None) -> Result:
    left = cold.evict(settings.stock)
    if left:
        raise rawduck.RawduckError(
            f"the kernel keeps {render.size(left)} of {settings.stock} in memory; run as root"
        )
    result = run_alone(mode.task(settings, query))
    if answer is not None and result.rows != answer:
        raise rawduck.RawduckError(f"{mode.title} answers {result.rows} instead of {answer}")
    return result


def _rotated(items: list[Mode], by: int) -> Iterator[Mode]:
    yield from items[by % len(items) :]
    yield from items[: by % len(items)]


def _print_scan(scan: str, series: dict[str, Series]) -> None:
    table = render.table(
        "", ">wall median", ">min", ">CPU median", ">times stock", ">of the device", ">MiB read",
        ">MiB copied", title=f"\n{SCAN_TITLES[scan]}, cold, seconds",
    )  # fmt: skip
    stock, device = series[STOCK].wall_median(), series[DEVICE].wall_median()
    titles = {mode.name: mode.title for mode in modes()} | {
        DEVICE: f"plain O_DIRECT reader, depth {direct_reader.DEPTH}"
    }
    for name, measured in series.items():
        wall = measured.wall_median()
        table.add_row(
            titles[name],
            f"{wall:.3f}",
            f"{measured.wall_min():.3f}",
            f"{measured.cpu_median():.3f}",
            f"{stock / wall:.2f}" if name != DEVICE else "",
            f"{device / wall:.0%}",
            f"{measured.bytes_median() / MIB:.0f}",
            f"{measured.bounce_median() / MIB:.0f}",
        )
    render.console.print(table)
    bandwidth = series[DEVICE].bytes_median() / device / 1e9
    render.console.print(f"The device reads {bandwidth:.2f} GB/s here.")


def write_csv(path: Path, scale: float, measurements: Measurements) -> None:
    """One row per measurement."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        columns = ["scale", "scan", "mode", "run", "wall_s", "cpu_s", "read_bytes", "bounce_bytes"]
        writer.writerow(columns)
        for scan, series in measurements.items():
            for mode, measured in series.items():
                for number, result in enumerate(measured.results, 1):
                    times = [f"{result.wall_seconds:.6f}", f"{result.cpu_seconds:.6f}"]
                    numbers = [result.device_bytes, result.bounce_bytes]
                    writer.writerow([f"{scale:g}", scan, mode, number, *times, *numbers])
