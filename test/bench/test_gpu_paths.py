"""`rawduck bench gpu-paths` without a GPU: in host memory, and with stand-ins that check calls."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
import rawduck
from rawduck.measuring.gpu import cufile
from support import run_cli

BUILD = Path(__file__).resolve().parents[2] / "build" / "host"
TABLE_WAYS = {"copy", "raw", "raw_memory", "query", "numpy", "numpy_1"}
STAGED = {"staged_1", "staged_n"}
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
        assert modes_of(rows, case) == STAGED
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
    assert modes_of(rows, "bytes") == STAGED | CUFILE
    if served_by == "direct":
        assert modes_of(rows, "q6") == TABLE_WAYS
        assert modes_of(rows, "random-4096") == modes_of(rows, "random-1048576") == STAGED | CUFILE
    direct = "gds" if os.path.exists("/proc/driver/nvidia-fs/version") else "p2pdma"
    assert f"| cuFile, one thread | {'compat' if served_by == 'compat' else direct} |" in report


def test_a_cufile_that_hangs(tmp_path, stand_ins, monkeypatch):
    monkeypatch.setenv("RAWDUCK_TEST_CUFILE_IS", "hang")
    monkeypatch.setattr(cufile, "_PROBE_SECONDS", 2)
    with pytest.raises(rawduck.RawduckError, match="did not come back within 2 seconds"):
        cufile.CuFile.find("0", str(tmp_path))


def test_a_cufile_that_ends_the_process(tmp_path, stand_ins, monkeypatch):
    monkeypatch.setenv("RAWDUCK_TEST_CUFILE_IS", "crash")
    report, rows = bench(tmp_path, "--cases", "bytes")
    assert modes_of(rows, "bytes") == STAGED
    assert "it ended the process with signal 6" in report
