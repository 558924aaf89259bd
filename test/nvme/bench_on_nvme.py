"""The experiments that want an NVMe device, on one. `rawduck bench micro`: every engine that it offers with
every queue strategy gives stock DuckDB's answers, nothing that is read is copied, and the device is asked
for what the work needs. `paper-passthrough` and `fdp` measure what they are there for. Only counts: in the
guest a time says nothing.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from rawduck import render
from rawduck.bench.core.bench import Bench
from rawduck.bench.core.case import Case
from rawduck.bench.core.experiment import Experiment
from rawduck.bench.core.options import Options
from rawduck.bench.core.results import Results
from rawduck.bench.experiments.device.fdp import AMPLIFICATION, HOST, Fdp
from rawduck.bench.experiments.device.micro import (
    COMMANDS,
    COPIED_READS,
    ENGINES,
    FLUSHES,
    FUA,
    STRATEGIES,
    Micro,
)
from rawduck.bench.experiments.paper import Passthrough

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
    checks = {
        Counts: {
            "every engine and strategy is there": _complete,
            "reads are not copied": _no_copies,
            "as many commands as the work needs": _commands,
            "every commit is durable": _durable,
        },
        Passthrough: {"with passthrough and without": _both_engines},
        Fdp: {"what the device wrote, with placement and without": _amplification},
    }
    with disk_of_stock(stock_device), Bench(list(checks), options) as bench:
        for kind, named in checks.items():
            _check_one(check, bench, kind, named)


@contextlib.contextmanager
def disk_of_stock(device: str) -> Iterator[Path]:
    """A file system that forgets what it is told to, unlike one in memory."""
    place = Path(STOCK_DIR)
    subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True)
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", device, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def _check_one(check: Callable, bench: Bench, kind: type[Experiment], named: dict[str, Callable]) -> None:
    measured: list[tuple[Experiment, Results]] = []

    def measure() -> None:
        measured.append(bench.measure(kind))
        experiment, results = measured[0]
        for table in experiment.tables(results):
            render.console.print(table)
        for what, why in experiment.left_out:
            print(f"guest: {kind.name} leaves out {what}: {why}")
        assert not results.failures(), results.failures()[:3]

    check(f"bench {kind.name} on {bench.options.target} answers as stock does", measure)
    if measured:
        for what, test in named.items():
            check(f"bench {kind.name}: {what}", lambda test=test: test(*measured[0]))


def _complete(micro: Micro, results: Results) -> None:
    left_out = {what for what, _ in micro.left_out}
    assert not left_out & {"io_uring_cmd", "nvme_ioctl", "io_uring", "posix"}, left_out
    wanted = {
        f"{engine}-{strategy}" for engine in ENGINES if engine not in left_out for strategy in STRATEGIES
    }
    for case in results.cases:
        there = {mode.name for mode in results.modes(case)}
        assert wanted <= there, wanted - there


def _both_engines(passthrough: Passthrough, results: Results) -> None:
    assert not passthrough.left_out, passthrough.left_out
    for case in results.cases:
        assert {mode.name for mode in results.modes(case)} == {"io_uring", "io_uring_cmd"}


def _amplification(fdp: Fdp, results: Results) -> None:
    """QEMU collects no garbage, so its media get what it was sent."""
    assert not fdp.left_out, fdp.left_out
    sent, factors = _values(results, "updates", HOST), _values(results, "updates", AMPLIFICATION)
    assert set(sent) == {"volume", "no_placement"}, sent
    for name, factor in factors.items():
        assert sent[name] > 0, name
        assert 0.99 < factor < 1.01, (name, factor)


def _values(results: Results, case: str, metric) -> dict[str, float]:
    found = results.case(case)
    medians = {mode.name: results.median(found, mode, metric) for mode in results.modes(found)}
    return {name: value for name, value in medians.items() if value is not None}


def _no_copies(_: Micro, results: Results) -> None:
    for case in results.cases:
        copied = _values(results, case.name, COPIED_READS)
        assert copied
        assert not any(copied.values()), {name: count for name, count in copied.items() if count}


def _commands(_: Micro, results: Results) -> None:
    for name, count in _values(results, "block", COMMANDS).items():
        assert 1 <= count <= 4, (name, count)
    for name, count in _values(results, "run", COMMANDS).items():
        assert RUN_BLOCKS <= count <= RUN_BLOCKS + 16, (name, count)


def _durable(_: Micro, results: Results) -> None:
    """By a flush or with FUA, which xNVMe has for NVMe commands only."""
    flushes, fua = _values(results, "commit", FLUSHES), _values(results, "commit", FUA)
    for name, count in flushes.items():
        assert count + fua[name] >= 1, (name, count, fua[name])
        nvme_commands = name.rsplit("-", 1)[0] in ("xnvme:io_uring_cmd", "xnvme:nvme")
        assert not name.startswith("xnvme:") or nvme_commands or fua[name] == 0, (name, fua[name])
