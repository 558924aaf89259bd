"""The experiments end to end, with little data, as a user starts them."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
from rawduck.bench import EXPERIMENTS
from support import loop_device, run_cli

# skyhook and its model need a Ceph cluster: test/ceph has it.
NAMES = [name for name in EXPERIMENTS if not name.startswith("skyhook")]

UNPRIVILEGED = ("unshare", "--user")


def bench(folder, *arguments):
    return run_cli("bench", *arguments, "--work-dir", str(folder))


def rows_of(folder, experiment) -> list[dict[str, str]]:
    path = folder / "results" / experiment / "results.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def warmed_mib(folder, experiment) -> set[int]:
    configurations = folder / "results" / experiment / "configurations.json"
    machines = json.loads(configurations.read_text())["machines"]
    return {machine["warmed_mib"] for machine in machines.values()}


def test_scan_on_a_device_and_resumed(tmp_path):
    with loop_device(tmp_path / "disk.img", 512, "512M") as device:
        options = ["scan", "--target", device, "--scale", "0.05", "--runs", "2"]
        unformatted = bench(tmp_path, *options)
        assert unformatted.returncode == 2
        assert "not a rawduck volume" in unformatted.stderr
        first = bench(tmp_path, *options, "--format", "--keep")
        assert first.returncode == 0, first.stdout + first.stderr
        files = json.loads(run_cli("ls", device, "--json").stdout)
        stock = tmp_path / "lineitem-sf0.05.duckdb"
        assert [(file["name"], file["size"]) for file in files] == [
            ("bench-lineitem-sf0.05.duckdb", stock.stat().st_size)
        ]
        rows = rows_of(tmp_path, "scan")
        unasked = bench(tmp_path, *options, "--format", "--force", "--resume")
        assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True), unasked.stderr
        refused = bench(tmp_path, *options, "--format", "--force", "--yes")
        assert refused.returncode == 2
        assert "--resume" in refused.stderr
        assert json.loads(run_cli("ls", device, "--json").stdout) == files
        resumed = bench(tmp_path, *options, "--resume")
        assert resumed.returncode == 0, resumed.stdout + resumed.stderr
        assert rows_of(tmp_path, "scan") == rows
        assert warmed_mib(tmp_path, "scan") == {25}, "512 for each unit of the scale factor"
    modes = {
        "volume",
        "volume_allocator",
        "direct",
        "stock",
        "stock_prefetch",
        "stock_allocator",
        "stock_tuned",
    }
    for case in ("narrow", "wide"):
        assert modes | {"device", "stock_mmap"} <= {row["mode"] for row in rows if row["case"] == case}
    assert all(row["error"] == "" and int(row["read_bytes"]) > 100_000 for row in rows)
    assert "## Bars" in (tmp_path / "results/scan/report.md").read_text()


def interrupt(running: subprocess.Popen) -> str:
    """One Ctrl-C for a process group; what it wrote to stderr until it ended."""
    os.killpg(running.pid, signal.SIGINT)
    try:
        return running.communicate(timeout=120)[1]
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        raise AssertionError(f"the interrupt did not end it: {running.communicate()[1][-3000:]}") from None


@pytest.mark.timeout(600)
def test_interrupted_and_resumed(tmp_path):
    """Ctrl-C reaches every process of the group, at any moment; what was measured stays."""
    options = ["bench", "scan", "--work-dir", str(tmp_path), "--scale", "0.05"]
    command = [str(Path(sys.executable).with_name("rawduck")), *options, "--runs", "1000"]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    running = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, text=True, **pipes)
    until = time.monotonic() + 240
    while not rows_of(tmp_path, "scan") and running.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    errors = interrupt(running)
    assert running.returncode == 130, errors
    assert "Traceback" not in errors, errors[-3000:]
    assert not [path.name for path in tmp_path.iterdir() if "rawduck" in path.name]
    before = rows_of(tmp_path, "scan")
    assert before
    assert not [row for row in before if row["error"]]
    resumed = run_cli(*options, "--runs", "1", "--resume")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert rows_of(tmp_path, "scan")[: len(before)] == before


@pytest.mark.parametrize(("before", "code"), [("SIG_DFL", 129), ("SIG_IGN", 0)])
def test_a_hangup_ends_it_unless_nohup_has_started_it(before, code):
    program = f"""import signal
from rawduck.commands import bench
signal.signal(signal.SIGHUP, signal.{before})
bench._end_on_signals()
signal.raise_signal(signal.SIGHUP)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == code


@pytest.mark.long
@pytest.mark.timeout(900)
def test_everything_quickly(tmp_path, monkeypatch):
    monkeypatch.setenv("RAWDUCK_GPU", "emulated")
    result = bench(tmp_path, *NAMES, "--quick", "--scale", "0.01", "--runs", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    summary = (tmp_path / "results/report.md").read_text()
    for name in NAMES:
        folder = tmp_path / "results" / name
        assert (folder / "report.md").stat().st_size > 0
        assert "## Bars" not in (folder / "report.md").read_text()
        assert f"({name}/report.md)" in summary
        rows = rows_of(tmp_path, name)
        assert not [row for row in rows if row["error"]]
        known = json.loads((folder / "configurations.json").read_text())["configurations"]
        assert {row["configuration"] for row in rows} == set(known)
    assert not [path.name for path in tmp_path.iterdir() if "rawduck" in path.name]
    one_connection = [row for row in rows_of(tmp_path, "commits") if row["case"] == "connections-1"]
    for row in one_connection:
        if row["mode"] == "volume":
            assert 0.9 <= float(row["flushes_per_commit"]) <= 1.1, row
    kept = {row["indexes_kept"] for row in rows_of(tmp_path, "art") if row["case"] == "constraints"}
    assert kept == {"6"}


def test_micro_prints_what_every_engine_and_strategy_asks_for(tmp_path):
    result = bench(tmp_path / "beside" / "..", "micro", "--scale", "0.01", "--runs", "1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Left out: io_uring_cmd: " in result.stdout
    assert "this is a regular file" in result.stdout
    rows = [row for row in rows_of(tmp_path, "micro") if row["mode"] not in ("stock", "fio")]
    strategies = ("sync", "single", "pool", "thread")
    for case in ("block", "run", "customer", "random-1", "random-16", "commit"):
        modes = {row["mode"] for row in rows if row["case"] == case}
        assert {f"{engine}-{way}" for engine in ("io_uring", "posix") for way in strategies} <= modes
    for row in rows:
        commands, size = float(row["commands"]), float(row["bytes"])
        if row["case"] == "block":
            assert 256 * 1024 <= size <= 4 * 256 * 1024, row
            assert 1 <= commands <= 4, row
        elif row["case"] == "run":
            assert 32_000_000 <= size <= 40_000_000, row
            assert 122 <= commands <= 160, row
        elif row["case"].startswith("random"):
            assert commands == 1, row
            assert size == 4096, row
        elif row["case"] == "commit":
            assert float(row["flushes"]) + float(row["fua_commands"]) >= 1, row
            assert 4096 <= size <= 64 * 1024, row
        engine, _, strategy = row["mode"].rpartition("-")
        assert re.search(rf"\b{engine} +{strategy} ", result.stdout), row["mode"]


def test_spilling_goes_to_the_volume(tmp_path):
    result = bench(
        tmp_path, "spill", "--cold-memory", "--scale", "0.1", "--memory-limit", "80MB", "--runs", "1"
    )
    assert result.returncode == 0, result.stdout + result.stderr
    rows = {(row["case"], row["mode"]): row for row in rows_of(tmp_path, "spill")}
    # What is dropped before its turn is never written, more of it on a busy machine.
    assert int(rows["sort", "volume_little"]["written_bytes"]) > 10_000_000
    if "Left out: the same with little page cache" in result.stdout:
        pytest.skip("no control group can be made here")
    # What did not stay in the page cache had to be read back.
    read = {case: int(rows[case, "stock"]["read_bytes"]) for case in ("sort", "sort-capped")}
    assert read["sort-capped"] > 0.9 * read["sort"]  # the same, but for a block of what was read besides
    assert not list(Path("/sys/fs/cgroup").glob("**/rawduck-bench-*"))
    assert warmed_mib(tmp_path, "spill") == {0}


def test_it_does_not_replace_a_file_that_it_did_not_make(tmp_path):
    precious = tmp_path / "lineitem-sf0.01.duckdb"
    with duckdb.connect(str(precious)) as connection:
        connection.execute("CREATE TABLE precious AS SELECT 1")
    before = precious.read_bytes()
    result = bench(tmp_path, "scan", "--scale", "0.01", "--runs", "1")
    assert result.returncode == 2
    assert "--force" in result.stderr
    result = bench(tmp_path, "scan", "--scale", "0.01", "--runs", "1", "--force")
    assert (result.returncode, "--yes" in result.stderr) == (2, True), result.stderr
    with duckdb.connect(str(precious)):
        result = bench(tmp_path, "scan", "--scale", "0.01", "--runs", "1", "--force", "--yes")
        assert (result.returncode, "in use" in result.stderr) == (2, True), result.stderr
    assert precious.read_bytes() == before
    result = bench(tmp_path, "scan", "--scale", "0.01", "--runs", "1", "--force", "--yes")
    assert (result.returncode, "Replaced" in result.stderr) == (0, True), result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["fly"], "no experiment fly"), (["scan", "--target", "memory:x"], "measure disks")],
)
def test_bad_arguments(tmp_path, arguments, message):
    result = bench(tmp_path, *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_two_sessions_do_not_share_a_work_directory(tmp_path):
    with (tmp_path / "bench.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = bench(tmp_path, "commits", "--scale", "0.05", "--runs", "1")
        assert refused.returncode == 2
        assert "--work-dir" in refused.stderr
    assert bench(tmp_path, "commits", "--scale", "0.05", "--runs", "1").returncode == 0


def test_without_the_queries_of_tpch(tmp_path):
    missing = ["--duckdb-source", str(tmp_path / "missing")]
    result = bench(tmp_path, "warm", "--scale", "0.01", "--runs", "1", *missing)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Left out: the queries of TPC-H" in result.stdout
    assert "not measured" in result.stdout


def test_without_root(tmp_path):
    """In a user namespace without any mapping the process has no right that a plain user lacks."""
    command = [*UNPRIVILEGED, str(Path(sys.executable).with_name("rawduck")), "bench", "scan", "fdp"]
    options = ["--work-dir", str(tmp_path), "--scale", "0.01", "--runs", "1"]
    if subprocess.run([*UNPRIVILEGED, "true"], check=False).returncode != 0:
        pytest.skip("no user namespace can be made here")
    result = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    report = (tmp_path / "results/fdp/report.md").read_text()
    assert "| as root | no |" in report
    assert "write amplification |" in report
    assert "only NVMe namespaces can have it" in report
