"""`rawduck bench gpu-paths` without a GPU: in host memory, and with stand-ins that check calls."""

from __future__ import annotations

import csv
import os
import signal
import sys
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest
import rawduck
from rawduck.measuring.gpu import cufile, ring
from rawduck.measuring.gpu.ring import RingTask
from rawduck.measuring.measure import Result, Worker
from support import run_cli

BUILD = Path(__file__).resolve().parents[2] / "build" / "host"
TABLE_WAYS = {"copy", "raw", "raw_memory", "query", "numpy", "numpy_1"}
STAGED = {"staged_1", "staged_n"}
RING = {"ring_1", "ring_n"}
#: Of a test that ends if the kernel does not.
SECONDS = 60
CUFILE = {"cufile_1", "cufile_n"}


def bench(folder: Path, *arguments: str) -> tuple[str, list[dict[str, str]]]:
    """The report, and the rows of results."""
    # A relative path: what is measured runs elsewhere.
    work = os.path.relpath(folder)
    options = ["--quick", "--scale", "0.01", "--runs", "1", "--work-dir", work]
    result = run_cli("bench", "gpu-paths", *options, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    results = folder / "results/gpu-paths"
    with (results / "results.csv").open(newline="") as file:
        return (results / "report.md").read_text(), list(csv.DictReader(file))


def modes_of(rows: list[dict[str, str]], case: str) -> set[str]:
    return {row["mode"] for row in rows if row["case"] == case and not row["error"]} - {"torch"}


@pytest.fixture
def stand_ins(monkeypatch):
    monkeypatch.setenv("RAWDUCK_TEST_FUNCTIONS", "1")
    monkeypatch.setenv("RAWDUCK_TEST_LIBCUDA", str(BUILD / "libcuda_checker.so"))
    monkeypatch.setenv("RAWDUCK_TEST_CUFILE", str(BUILD / "libcufile_stand_in.so"))
    monkeypatch.setenv("RAWDUCK_GPU", "0")


# All ways of a case give the same answer, taken from the device, or the run fails.
def test_in_host_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("RAWDUCK_GPU", "emulated")
    report, rows = bench(tmp_path)
    assert "**No GPU**: host memory stood in for it" in report
    assert "| cuFile | it reads into a GPU's memory" in report
    for case in ("q6", "numbers"):
        assert modes_of(rows, case) == TABLE_WAYS
    for case in ("bytes", *(f"random-{size}" for size in (4096, 16384, 65536, 262144, 1048576))):
        assert modes_of(rows, case) == STAGED | RING
    ring = [row for row in rows if row["mode"] in RING and not row["error"]]
    assert all(float(row["server_cores"]) > 0 and row["sms_held"] == "" for row in ring)
    assert all(float(row["p50_s"]) > 0 for row in ring if row["case"].startswith("random-"))
    assert "served by the CPU, one thread | " in report
    assert "1 threads; 1 thread blocks; SMs held: -" in report
    copied = {row["mode"]: float(row["copied_bytes_per_s"] or 0) for row in rows if row["case"] == "q6"}
    assert all(copied.values())


def test_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("RAWDUCK_GPU", "0")
    monkeypatch.setenv("RAWDUCK_TEST_FUNCTIONS", "1")
    monkeypatch.setenv("RAWDUCK_TEST_LIBCUDA", str(tmp_path / "nothing.so"))
    report, rows = bench(tmp_path)
    assert rows == []
    assert "NVIDIA's driver cannot be loaded" in report
    assert "RAWDUCK_GPU=emulated" in report


# The checkers end a process that calls the driver or cuFile wrongly.
@pytest.mark.parametrize("served_by", [pytest.param("direct", marks=pytest.mark.long), "compat"])
def test_how_cufile_serves_reads(tmp_path, stand_ins, monkeypatch, served_by):
    monkeypatch.setenv("RAWDUCK_TEST_CUFILE_IS", served_by)
    report, rows = bench(tmp_path, *(["--cases", "bytes"] if served_by == "compat" else []))
    assert modes_of(rows, "bytes") == STAGED | RING | CUFILE
    if served_by == "direct":
        assert modes_of(rows, "q6") == TABLE_WAYS
        assert modes_of(rows, "random-4096") == modes_of(rows, "random-1048576") == STAGED | RING | CUFILE
    direct = "gds" if os.path.exists("/proc/driver/nvidia-fs/version") else "p2pdma"
    compat = "compat, the GPU's memory not registered"
    assert f"| cuFile, one thread | {compat if served_by == 'compat' else direct} |" in report


def test_a_cufile_that_hangs(tmp_path, stand_ins, monkeypatch):
    monkeypatch.setenv("RAWDUCK_TEST_CUFILE_IS", "hang")
    monkeypatch.setattr(cufile, "_PROBE_SECONDS", 2)
    with pytest.raises(rawduck.RawduckError, match="did not come back within 2 seconds"):
        cufile.CuFile.find("0", str(tmp_path))


def test_a_cufile_that_ends_the_process(tmp_path, stand_ins, monkeypatch):
    monkeypatch.setenv("RAWDUCK_TEST_CUFILE_IS", "crash")
    report, rows = bench(tmp_path, "--cases", "bytes")
    assert modes_of(rows, "bytes") == STAGED | RING
    assert "it ended the process with signal 6" in report


@pytest.fixture
def blocks(tmp_path):
    """A file of 64 blocks that differ, and their size."""
    path = tmp_path / "blocks"
    path.write_bytes(b"".join(bytes([number]) * 4096 for number in range(64)))
    return path, 4096


# By the checker, kernels run one block after the other, in a thread that waits for them.
@pytest.mark.parametrize("device", ["emulated", "0"])
@pytest.mark.parametrize("threads", [1, 5])
def test_what_a_device_asks_for_is_what_the_file_has(blocks, stand_ins, device, threads):
    path, size = blocks
    order = [number * 7 % 64 for number in range(200)]
    task = RingTask(device, str(path), [number * size for number in order], size, threads, singly=True)
    result = task.perform()
    expected = b"".join(bytes([number]) * size for number in order)
    assert result.rows == [(zlib.crc32(expected),)]
    assert result.values["reads"] == 200
    assert 0 < result.values["p50_s"] <= result.values["p99_s"] < SECONDS
    assert "sms_held" not in result.values
    assert result.columns[0].endswith("SMs held: -")


@pytest.mark.parametrize("device", ["emulated", "0"])
def test_a_read_that_fails_ends_the_kernel(blocks, stand_ins, device):
    path, size = blocks
    offsets = [0] * 100 + [64 * size] + [0] * 5000
    before = time.monotonic()
    with pytest.raises(rawduck.RawduckError, match=str(path)):
        RingTask(device, str(path), offsets, size, 2, singly=True).perform()
    assert time.monotonic() - before < SECONDS


@pytest.mark.parametrize(
    ("size", "threads"), [(4096, 0), (4096, -1), (4096, 100_000), (0, 1), (-512, 1), (100, 1)]
)
def test_numbers_that_can_never_work_are_refused(blocks, stand_ins, size, threads):
    task = RingTask("emulated", str(blocks[0]), [0], size, threads)
    with pytest.raises(rawduck.RawduckError, match="takes at least one read, of a multiple of 512 bytes"):
        task.perform()


@pytest.mark.parametrize("device", ["emulated", "0"])
def test_a_device_waits_no_longer_than_it_was_told(blocks, stand_ins, device):
    path, size = blocks
    task = RingTask(device, str(path), [0] * 1000, size, 1, patience=1e-9)
    with pytest.raises(rawduck.RawduckError, match=r"has waited for 0 s for .* its kernel has ended"):
        task.perform()


@dataclass
class InterruptedRing(RingTask):
    """Says when it has started, and how its kernel has ended. It would take longer than the test waits."""

    said: str = ""

    def perform(self) -> Result:
        self.offsets = [0] * 200_000
        library = ring._library()
        start, wait = library.rawduck_gpu_ring_start, library.rawduck_gpu_ring_wait

        def say_started(run: object) -> int:
            result = start(run)
            Path(self.said, "started").touch()
            return result

        def say_ended(run: object) -> int:
            result = wait(run)
            if result != ring._NOT_YET:
                Path(self.said, "ended").write_text(str(result))
            return result

        library.rawduck_gpu_ring_start, library.rawduck_gpu_ring_wait = say_started, say_ended
        return super().perform()


@pytest.mark.parametrize("device", ["emulated", "0"])
@pytest.mark.parametrize("fork", [False, True])
def test_an_interrupt_ends_the_kernel_before_the_process(tmp_path, blocks, stand_ins, device, fork):
    path, _ = blocks
    task = InterruptedRing(device, str(path), [], 512, 1, said=str(tmp_path))
    is_over = threading.Event()
    with Worker(fork, environment={"PYTHONPATH": os.pathsep.join(sys.path)}) as worker:

        def interrupt() -> None:
            while not is_over.wait(0.01):
                if (tmp_path / "started").exists():
                    # One that forks is ended by who has started it, and ends its child.
                    os.kill(worker._process.pid, signal.SIGTERM if fork else signal.SIGINT)
                    return

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with pytest.raises((KeyboardInterrupt, rawduck.RawduckError)) as raised:
                worker.run(task)
        finally:
            is_over.set()
            thread.join()
    assert (tmp_path / "ended").exists(), raised.value
    assert (tmp_path / "ended").read_text() == "-1", "it was interrupted, and not ready"
