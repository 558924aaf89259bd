"""`rawduck bench gpu-paths`: the ways from storage to a GPU."""

from __future__ import annotations

import importlib.util
import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from rawduck import disks, tpch
from rawduck.bench.core import modes
from rawduck.bench.core.case import CPU, KERNEL, WALL, Case, Kind, Measurement, Metric, Mode
from rawduck.bench.core.experiment import Bar, Experiment, at_least, at_most
from rawduck.bench.core.report import table
from rawduck.bench.core.results import Results
from rawduck.errors import RawduckError
from rawduck.measuring.gpu.cufile import CuFile, CuFileTask
from rawduck.measuring.gpu.device_memory import EMULATED, open_memory
from rawduck.measuring.gpu.ring import RingTask
from rawduck.measuring.gpu.staged import CopyTask, StagedTask
from rawduck.measuring.measure import Task

_MIB = 1024**2
_COLUMNS = {
    "q6": ("l_quantity", "l_extendedprice", "l_discount", "l_shipdate"),
    "numbers": (
        *("l_orderkey", "l_partkey", "l_suppkey", "l_linenumber", "l_quantity", "l_extendedprice"),
        *("l_discount", "l_tax", "l_shipdate", "l_commitdate", "l_receiptdate"),
    ),
}
_TITLES = {"q6": "the four columns of TPC-H's query 6", "numbers": "eleven numeric columns"}
#: Of sequential reads: what several drives take at once without being split.
_BLOCK_BYTES = _MIB
_THREADS = 16
_RANDOM_SIZES = (512, 4096, 16 * 1024, 64 * 1024, 256 * 1024, _MIB)
_RANDOM_READS = {True: 200, False: 2000}
#: Read in a run: all of it stays on the device, to be compared.
_BYTES_MOST = 1024 * _MIB
_MEMORY_GIB_PER_SCALE = 0.5
_COPY_BYTES = {True: _MIB, False: 256 * _MIB}
_COPIES = 20

_RATE = Metric("copied_bytes_per_s", "GB/s copied to the GPU", 1e9, ".2f")
_DECODED = Metric("decoded_bytes_per_s", "GB/s decoded there", 1e9, ".2f")
_CORES = Metric("cores", "processors", 1, ".2f")
_P50 = Metric("p50_s", "p50, us", 1e-6, ",.0f")
_P99 = Metric("p99_s", "p99, us", 1e-6, ",.0f")
_READS = Metric("reads_per_s", "reads/s", 1, ",.0f")
#: Of reads that the GPU asks for: the threads that serve it alone, and what its kernel keeps busy.
_SERVER_CORES = Metric("server_cores", "processors that serve it", 1, ".2f")
_SMS_HELD = Metric("sms_held", "SMs held", 1, ",.0f")
#: What is measured, by what a task counts.
_RATES = {
    "gpu_bytes": _RATE,
    "decoded_bytes": _DECODED,
    "reads": _READS,
    "server_cpu_seconds": _SERVER_CORES,
}

_COPY, _SCAN, _SCAN_MEMORY, _QUERY, _NUMPY, _NUMPY_1, _TORCH = (
    Mode("copy", "copies from pinned memory alone", Kind.YARDSTICK),
    Mode("raw", "rawduck, compressed blocks decoded there", Kind.OURS, {"way": "scan"}),
    Mode("raw_memory", "the same from a volume in memory", Kind.OURS, {"way": "scan", "memory": True}),
    Mode("query", "rawduck, DuckDB's vectors", Kind.OURS, {"way": "query"}),
    Mode("numpy", "DuckDB's arrays, then copied", Kind.STOCK, {"way": "numpy"}),
    Mode("numpy_1", "the same, one thread", Kind.STOCK, {"way": "numpy", "threads": 1}),
    Mode("torch", "DuckDB's .torch(), then .cuda()", Kind.STOCK, {"way": "torch"}, optional=True),
)
_STAGED_1, _STAGED_N, _CUFILE_1, _CUFILE_N = (
    Mode("staged_1", "read by one thread, then copied", Kind.YARDSTICK, {"threads": 1}),
    Mode("staged_n", f"read by {_THREADS} threads, then copied", Kind.YARDSTICK, {"threads": _THREADS}),
    Mode("cufile_1", "cuFile, one thread", Kind.YARDSTICK, {"threads": 1}, optional=True),
    Mode("cufile_n", f"cuFile, {_THREADS} threads", Kind.YARDSTICK, {"threads": _THREADS}, optional=True),
)
#: Not optional: a run whose kernel has waited for too long fails.
_RING_1, _RING_N = (
    Mode("ring_1", "asked for by the GPU, served by the CPU, one thread", Kind.YARDSTICK, {"threads": 1}),
    Mode(
        "ring_n",
        f"asked for by the GPU, served by the CPU, {_THREADS} threads",
        Kind.YARDSTICK,
        {"threads": _THREADS},
    ),
)


class GpuPaths(Experiment):
    name = "gpu-paths"
    title = "From storage to the GPU"
    text = (
        "Columns of lineitem, and bytes of its file, by every way to a GPU's memory that there is here. The "
        "processor at the centre: it reads and has the bytes copied (staged), or decodes and has the values "
        "copied (DuckDB's arrays and tensors). The GPU at the centre, the processor asking: cuFile, and "
        "rawduck's raw route, in which compressed blocks are copied and decoded there. The GPU asking, the "
        "processor serving: a kernel writes what it wants to read into a ring, and threads read it. Reads "
        "come from the target that the report names, and say nothing of another kind of drive."
    )
    scale = 5.0
    quick_scale = 0.05
    metrics = (WALL, CPU, KERNEL, _CORES, _RATE, _DECODED, _P50, _P99, _READS, _SERVER_CORES, _SMS_HELD)

    def cases(self) -> Iterator[Case]:
        self._paths: dict[str, str] = {}
        self._device = os.environ.get("RAWDUCK_GPU", "0")
        if not self._can_open():
            return
        self._database = self.bench.database(self.bench.scale(self), "lineitem")
        for name in _COLUMNS:
            yield self._table_case(name)
        if not self._has_path:
            self.leave_out("bytes of the file", f"{self.bench.options.target} has no path to read from")
            return
        yield self._case("bytes", "Bytes of the file, one after the other", _BLOCK_BYTES, self._sequential)
        for size in _RANDOM_SIZES:
            yield self._case(f"random-{size}", f"Single reads of {size} bytes", size, self._scattered)

    def _can_open(self) -> bool:
        try:
            with open_memory(self._device):
                pass
        except RawduckError as error:
            why = f"{error}. RAWDUCK_GPU=emulated runs all of it in host memory, which shows that it runs"
            self.leave_out("all of it", why)
            return False
        for module, what in (("numpy", "columns of tables"), ("torch", _TORCH.title)):
            if importlib.util.find_spec(module) is None:
                self.leave_out(what, f"{module} is not installed (pip install {module})")
        return True

    def _settings(self) -> dict[str, object]:
        return {"scale": self.bench.scale(self), "device": self._device}

    def _table_case(self, name: str) -> Case:
        ways = [_SCAN, _SCAN_MEMORY, _QUERY, _NUMPY, _NUMPY_1, _TORCH]
        there = {
            "numpy": importlib.util.find_spec("numpy") is not None,
            "torch": importlib.util.find_spec("torch") is not None,
        }
        chosen = [mode for mode in ways if there["numpy"] and (mode is not _TORCH or there["torch"])]
        return Case(
            name,
            f"Columns of lineitem: {_TITLES[name]}",
            self._settings() | {"columns": _COLUMNS[name]},
            [_COPY, *chosen],
            lambda mode: self._measure_table(mode, _COLUMNS[name]),
            self._prepare,
        )

    def _prepare(self) -> None:
        self._database.prepare_volume(self.bench.volume)
        self._database.generate()

    def _measure_table(self, mode: Mode, columns: tuple[str, ...]) -> Measurement:
        if mode is _COPY:
            return self._run(mode, CopyTask(self._device, _COPY_BYTES[self.bench.options.quick], _COPIES))
        from rawduck.measuring.gpu.tables import TableTask

        threads = mode.settings.get("threads", self.bench.options.threads)
        config = {"threads": threads} if threads else {}
        place = modes.ON_VOLUME if mode.kind is Kind.OURS else modes.ON_FILE
        opened = modes.make(mode.name, mode.title, place, config=config)
        self._database.make_cold()
        path = self._database.volume_path if mode.kind is Kind.OURS else str(self._database.stock_path)
        task = TableTask(
            **vars(self.bench.session(opened, path)),
            way=str(mode.settings["way"]),
            device=self._device,
            columns=columns,
            load=str(tpch.parquet_path(self._database.parquet, "lineitem"))
            if mode.settings.get("memory")
            else "",
            load_gib=1 + math.ceil(_MEMORY_GIB_PER_SCALE * self.bench.scale(self)),
        )
        return self._run(mode, task)

    def _case(self, name: str, title: str, size: int, offsets: Callable[[int], list[int]]) -> Case:
        return Case(
            name,
            title,
            self._settings() | {"block_bytes": size},
            # A drive with LBAs of 4 KiB reads no less.
            [
                replace(mode, optional=mode.optional or size < 4096)
                for mode in (_STAGED_1, _STAGED_N, _RING_1, _RING_N, *self._cufile_modes())
            ],
            lambda mode: self._measure_bytes(mode, offsets(size), size, singly=name != "bytes"),
            self._prepare,
        )

    def _cufile_modes(self) -> list[Mode]:
        if self._device == EMULATED:
            self.leave_out("cuFile", "it reads into a GPU's memory, and the device is emulated")
            return []
        return [_CUFILE_1, _CUFILE_N] if self._cufile else []

    @cached_property
    def _cufile(self) -> CuFile | None:
        try:
            return CuFile.find(self._device, self._path)
        except RawduckError as error:
            self.leave_out("cuFile", str(error))
            return None

    def _measure_bytes(self, mode: Mode, offsets: list[int], size: int, singly: bool) -> Measurement:
        threads = int(mode.settings["threads"])
        if mode.name in (_CUFILE_1.name, _CUFILE_N.name):
            task = CuFileTask(self._device, self._path, offsets, size, threads, self._cufile, singly)
            self._paths[mode.title] = self._cufile.path
            return self._run(mode, task)
        kind = RingTask if mode.name in (_RING_1.name, _RING_N.name) else StagedTask
        return self._run(mode, kind(self._device, self._path, offsets, size, threads, singly))

    @property
    def _has_path(self) -> bool:
        return not self.bench.options.target.startswith(("memory:", "simulated:", "vfio:"))

    @property
    def _path(self) -> str:
        return os.path.abspath(disks.block_device(self.bench.options.target))

    def _ranges(self, size: int) -> list[int]:
        """Offsets of all whole blocks of the database's file that lie in one piece."""
        offsets = [
            at
            for offset, length in self.bench.volume.file_ranges(self._database.volume_name)
            for at in range(offset, offset + length - size + 1, size)
        ]
        if not offsets:
            raise RawduckError(
                f"{self._database.volume_name} has no {size} bytes in one piece on {self._path}; take a "
                "larger --scale"
            )
        return offsets

    def _sequential(self, size: int) -> list[int]:
        return self._ranges(size)[: _BYTES_MOST // size]

    def _scattered(self, size: int) -> list[int]:
        count = min(_RANDOM_READS[self.bench.options.quick], _BYTES_MOST // size)
        return random.Random(size).choices(self._ranges(size), k=count)

    def _run(self, mode: Mode, task: Task) -> Measurement:
        result = self.bench.run_task(task)
        if result.columns and result.columns[0]:
            singly = ", single reads" if getattr(task, "singly", False) else ""
            self._paths[mode.title + singly] = result.columns[0]
        measurement = Measurement.of(result)
        wall = result.wall_seconds
        for counted, metric in _RATES.items():
            if counted in measurement.values:
                measurement.values[metric.name] = measurement.values.pop(counted) / wall
        measurement.values[_CORES.name] = result.cpu_seconds / wall
        return measurement

    def notes(self, results: Results) -> list[str]:
        """What served each way, as it says itself."""
        target = self.bench.options.target
        disk = disks.disk_of(target) if self._has_path else ""
        parts = []
        if self._device == EMULATED:
            parts.append("**No GPU**: host memory stood in for it, so no figure above is one of a GPU.")
        parts.append(f"Read from `{target}`" + (f", on {disk}" if disk else "") + ".")
        if self._paths:
            parts += ["## What served it", table(("way", "path"), sorted(self._paths.items()))]
        return parts

    def bars(self, results: Results) -> list[Bar]:
        if self._device == EMULATED:
            return []
        bars = []
        for name, title in _TITLES.items():
            case = results.case(name)
            ours, copy = results.mode(case, _SCAN_MEMORY.name), results.mode(case, _COPY.name)
            torch = results.mode(case, _TORCH.name)
            rate, decoded, cores = (
                results.median(case, ours, metric) if ours else None for metric in (_RATE, _DECODED, _CORES)
            )
            copied = results.median(case, copy, _RATE) if copy else None
            times, p_value = results.compare(case, ours, torch, WALL)
            share = rate / copied if rate and copied else None
            bars += [
                at_least(f"{title}: compressed bytes, of the copy rate", 0.9, share),
                at_least(f"{title}: GB/s decoded", 125, decoded and decoded / 1e9),
                at_most(f"{title}: processors", 2, cores),
                at_least(f"{title}: times .torch() and .cuda()", 10, times, p_value),
            ]
        return bars
