"""`rawduck bench scan`: how fast cold data gets into DuckDB, by every way there is."""

from __future__ import annotations

from collections.abc import Iterator

from rawduck import disks, paths
from rawduck.bench.core import modes
from rawduck.bench.core.case import (
    COPIED,
    CPU,
    FAULTS,
    KERNEL,
    READ,
    SYSTEM_CALLS,
    WALL,
    Case,
    Kind,
    Measurement,
    Metric,
    Mode,
)
from rawduck.bench.core.experiment import Bar, Experiment, at_least, at_most
from rawduck.bench.core.report import table
from rawduck.bench.core.results import Results
from rawduck.measuring import direct_reader
from rawduck.measuring.measure import ReadTask

_QUERIES = {
    "narrow": "SELECT sum(l_orderkey), sum(l_partkey), sum(l_suppkey) FROM lineitem",
    "wide": "SELECT sum(l_orderkey), sum(l_partkey), sum(l_suppkey), sum(l_linenumber), sum(l_quantity), "
    "sum(l_extendedprice), sum(l_discount), sum(l_tax), max(l_shipdate), sum(strlen(l_comment)) "
    "FROM lineitem",
    "filter": "SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' "
    "AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
}
_TITLES = {
    "narrow": "Narrow scan: three integer columns (bound by I/O)",
    "wide": "Wide scan: ten columns, text among them",
    "filter": "Selective filter: TPC-H's query 6, 2 % of the rows",
}
#: Speed against stock's default and its best mode, CPU seconds against its default and the mode with fewest.
_BARS = {
    "narrow": (2.8, 1.5, 0.5, 0.55),
    "wide": (None, 1.25, 0.65, None),
    "filter": (None, 1.4, 0.6, None),
}
#: What the memory of ours that data passes through is worth.
_OFF = modes.make(
    "volume_plain",
    "rawduck, volume, nvme_buffer_memory = false",
    modes.ON_VOLUME,
    extension_settings={"nvme_buffer_memory": "false"},
)


def _device_mode(name: str, pages: str) -> Mode:
    settings = {"depth": direct_reader.DEPTH, "block_bytes": direct_reader.BLOCK_BYTES, "pages": pages}
    return Mode(name, f"bare device, depth {direct_reader.DEPTH}, {pages} pages", Kind.YARDSTICK, settings)


_DEVICE = _device_mode("device", "huge")
_DEVICE_SMALL_PAGES = _device_mode("device_small_pages", "small")


class Scan(Experiment):
    name = "scan"
    title = "Cold scans of lineitem"
    text = (
        "TPC-H lineitem, the same bytes in stock DuckDB's file and on the volume, is scanned with nothing of "
        "it cached. The bare device is a plain reader with direct I/O that fetches as many bytes of the same "
        "place as the scan needs, and throws them away: once into huge pages of memory, as rawduck reads "
        "what it then copies, and once into pages of 4 KiB, as most programs do."
    )

    def cases(self) -> Iterator[Case]:
        scale = self.bench.scale(self)
        self._database = self.bench.database(scale, "lineitem")
        for name, query in _QUERIES.items():
            yield Case(
                name,
                f"{_TITLES[name]}, scale factor {scale:g}",
                {"scale": scale, "query": query, "threads": self.bench.options.threads},
                [*self._modes(), *self._yardsticks()],
                lambda mode, query=query: self._measure(mode, query),
                self._prepare,
            )

    def _modes(self) -> list[modes.DuckMode]:
        return modes.with_config([*modes.ours(), _OFF, *modes.stock()], threads=self.bench.options.threads)

    def _yardsticks(self) -> list[Mode]:
        if paths.is_function(self.bench.options.target):
            self.leave_out(
                "bare device", "the kernel has no device for this target that a plain reader could open"
            )
            return []
        return [_DEVICE, _DEVICE_SMALL_PAGES]

    def _prepare(self) -> None:
        self._database.prepare_volume(self.bench.volume)
        self._ranges = self.bench.volume.file_ranges(self._database.volume_name)
        self._wanted_bytes: dict[str, int] = {}

    def _measure(self, mode: Mode, query: str) -> Measurement:
        if mode.kind is Kind.YARDSTICK:
            return self._read_device(query, huge_pages=mode is _DEVICE)
        assert isinstance(mode, modes.DuckMode)
        return self.bench.query(mode, self._database, query)

    def _read_device(self, query: str, huge_pages: bool) -> Measurement:
        if query not in self._wanted_bytes:
            volume = self._modes()[0]
            self._wanted_bytes[query] = int(
                self.bench.query(volume, self._database, query).values["read_bytes"]
            )
        ranges = direct_reader.take(self._ranges, self._wanted_bytes[query])
        device = disks.block_device(self.bench.options.target)
        task = ReadTask(device, ranges, direct_reader.DEPTH, direct_reader.BLOCK_BYTES, huge_pages)
        return Measurement.of(self.bench.run_task(task))

    def notes(self, results: Results) -> list[str]:
        """What was spent on each GiB of the data that the scan needs."""
        parts = []
        if not any(SYSTEM_CALLS.name in row.values for row in results.rows):
            self.leave_out("system calls", "only root can count them, with tracefs mounted")
        for case in results.cases:
            rows = [row for mode in results.modes(case) if (row := _per_gib(results, case, mode))]
            header = (
                "mode",
                ">CPU s / GiB",
                ">of it in the kernel",
                ">page faults / GiB",
                ">system calls / GiB",
                ">copied by the engine",
            )
            parts += [f"## Cost per GiB of data: {_TITLES[case.name]}", table(header, rows)]
        return parts

    def bars(self, results: Results) -> list[Bar]:
        bars = []
        for name, (stock, best, cpu_stock, cpu_best) in _BARS.items():
            case = results.case(name)
            ours = results.mode(case, modes.VOLUME)
            for metric, bar, against in (
                (WALL, stock, results.mode(case, modes.STOCK)),
                (WALL, best, results.best(case, WALL)),
                (WALL, 1.0, results.mode(case, _OFF.name)),
                (CPU, cpu_stock, results.mode(case, modes.STOCK)),
                (CPU, cpu_best, results.best(case, CPU)),
            ):
                if bar is not None:
                    bars.append(_bar(results, case, name, metric, bar, ours, against))
        narrow = results.case("narrow")
        share, _ = results.compare(
            narrow, results.mode(narrow, modes.VOLUME), results.mode(narrow, _DEVICE.name), WALL
        )
        return [*bars, at_least("narrow: share of the device's bandwidth", 0.75, share)]


def _bar(
    results: Results,
    case: Case | None,
    name: str,
    metric: Metric,
    bar: float,
    ours: Mode | None,
    against: Mode | None,
) -> Bar:
    """Of the wall time it is a speed."""
    other = against.title if against else "a mode that has not run"
    if metric is WALL:
        return at_least(f"{name}: speed against {other}", bar, *results.compare(case, ours, against, WALL))
    ratio, _ = results.compare(case, against, ours, CPU)
    return at_most(f"{name}: CPU seconds against {other}", bar, ratio)


def _per_gib(results: Results, case: Case, mode: Mode) -> tuple[str, ...] | None:
    measured = results.mode(case, _DEVICE.name) or results.mode(case, modes.VOLUME)
    needed = results.median(case, measured, READ) if measured else None
    if not needed:
        return None
    gib = needed / 1024**3
    cpu, kernel, faults = (results.median(case, mode, metric) / gib for metric in (CPU, KERNEL, FAULTS))
    calls = results.median(case, mode, SYSTEM_CALLS)  # None where they cannot be counted
    # Stock's copies are the kernel's, out of the page cache, and are not counted anywhere.
    copied = f"{results.median(case, mode, COPIED) / needed:.0%}" if mode.kind is Kind.OURS else ""
    counts = f"{faults:,.0f}", "" if calls is None else f"{calls / gib:,.0f}"
    return mode.title, f"{cpu:.2f}", f"{kernel:.2f}", *counts, copied
