"""`rawduck bench micro` on an NVMe namespace: every engine that it offers with every queue strategy gives
stock DuckDB's answers, nothing that is read is copied, and the device is asked for what the work needs. Only
counts: in the guest a time says nothing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from rawduck import render
from rawduck.bench.bench import Bench
from rawduck.bench.experiment import Case
from rawduck.bench.micro import COMMANDS, COPIED_READS, ENGINES, FLUSHES, FUA, STRATEGIES, Micro
from rawduck.bench.options import Options
from rawduck.bench.results import Results

BLOCK = 256 * 1024
RUN_BLOCKS = 4_000_000 * 8 // BLOCK
STOCK_DIR = "/tmp/stock"


class Counts(Micro):
    """Without the random reads, which are about time."""

    def cases(self) -> Iterator[Case]:
        return (case for case in super().cases() if not case.name.startswith("random"))


def check_all(check: Callable, target: str, stock_device: str, out: str, scale: float) -> None:
    """`stock_device` becomes the disk of stock DuckDB: what lies on it is lost."""
    folders = {"stock_dir": Path(STOCK_DIR), "work_dir": Path(out), "out": Path(out) / "results"}
    options = Options(target, **folders, scale=scale, format=True, force=True, quick=True)
    measured: list[tuple[Micro, Results]] = []

    def measure() -> None:
        subprocess.run(["mkfs.ext4", "-q", "-F", stock_device], check=True)
        Path(STOCK_DIR).mkdir()
        subprocess.run(["mount", stock_device, STOCK_DIR], check=True)
        try:
            with Bench([Counts], options) as bench:
                measured.append(bench.measure(Counts))
        finally:
            subprocess.run(["umount", STOCK_DIR], check=True)
        micro, results = measured[0]
        for table in micro.tables(results):
            render.console.print(table)
        for what, why in micro.left_out:
            print(f"guest: micro leaves out {what}: {why}")
        assert not results.failures(), results.failures()[:3]

    check(f"bench micro on {target} answers as stock does", measure)
    if measured:
        micro, results = measured[0]
        check("bench micro: every engine and strategy is there", lambda: _complete(micro, results))
        check("bench micro: reads are not copied", lambda: _no_copies(results))
        check("bench micro: as many commands as the work needs", lambda: _commands(results))
        check("bench micro: every commit is durable", lambda: _durable(results))


def _complete(micro: Micro, results: Results) -> None:
    left_out = {what for what, _ in micro.left_out}
    assert not left_out & {"io_uring_cmd", "nvme_ioctl", "io_uring", "posix"}, left_out
    wanted = {
        f"{engine}-{strategy}" for engine in ENGINES if engine not in left_out for strategy in STRATEGIES
    }
    for case in results.cases:
        there = {mode.name for mode in results.modes(case)}
        assert wanted <= there, wanted - there


def _values(results: Results, case: str, metric) -> dict[str, float]:
    found = results.case(case)
    medians = {mode.name: results.median(found, mode, metric) for mode in results.modes(found)}
    return {name: value for name, value in medians.items() if value is not None}


def _no_copies(results: Results) -> None:
    for case in results.cases:
        copied = _values(results, case.name, COPIED_READS)
        assert copied
        assert not any(copied.values()), {name: count for name, count in copied.items() if count}


def _commands(results: Results) -> None:
    for name, count in _values(results, "block", COMMANDS).items():
        assert 1 <= count <= 4, (name, count)
    for name, count in _values(results, "run", COMMANDS).items():
        assert RUN_BLOCKS <= count <= RUN_BLOCKS + 16, (name, count)


def _durable(results: Results) -> None:
    """By a flush or with FUA, which xNVMe has for NVMe commands only."""
    flushes, fua = _values(results, "commit", FLUSHES), _values(results, "commit", FUA)
    for name, count in flushes.items():
        assert count + fua[name] >= 1, (name, count, fua[name])
        nvme_commands = name.rsplit("-", 1)[0] in ("xnvme:io_uring_cmd", "xnvme:nvme")
        assert not name.startswith("xnvme:") or nvme_commands or fua[name] == 0, (name, fua[name])
