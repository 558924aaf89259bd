"""`rawduck bench skyhook` end to end, with very little data."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rawduck.bench.experiments.ceph.site import ModelSite
from rawduck.ceph.network import PrivateNetwork
from support import run_cli

QUICK = ("bench", "skyhook", "--quick", "--scale", "0.01", "--runs", "1")
STARTED_SECONDS = 90
ENDED_SECONDS = 30


def rows_of(folder: Path, experiment: str = "skyhook") -> list[dict[str, str]]:
    with (folder / f"results/{experiment}/results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def processes_of(folder: Path) -> list[str]:
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return [line.decode() for line in lines if str(folder).encode() in line and b"ceph-" in line]


def assert_nothing_runs(folder: Path) -> None:
    """The helper of a host ends when it notices that its OSDs have."""
    until = time.monotonic() + ENDED_SECONDS
    while (left := processes_of(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == []


@pytest.mark.long
def test_on_a_cluster_of_its_own(cluster, tmp_path):
    result = run_cli(*QUICK, "--work-dir", str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    rows = rows_of(tmp_path)
    assert not [row for row in rows if row["error"]]
    links = {"loopback"} if PrivateNetwork.why_not() else {"loopback", "1g"}
    for mode in ("ours", "ranges", "skyhook", "always"):
        cases = {row["case"] for row in rows if row["mode"] == mode}
        computed = {f"{link}-q{number:02}" for link in links for number in range(1, 23)}
        assert cases == computed | {f"repeated_{link}-q{number}" for link in links for number in ("01", "06")}
    ranges = [row for row in rows if row["mode"] == "ranges"]
    assert all(row["calls"] == "0" and float(row["moved_bytes"]) > 0 for row in ranges)
    assert all(float(row["osd_cpu_s"]) > 0 for row in ranges)
    report = (tmp_path / "results/skyhook/report.md").read_text()
    assert "too little data to judge by" in report
    assert "## loopback: speed of rawduck" in report
    assert "## loopback: a query that ran just before" in report
    described = json.loads((tmp_path / "results/skyhook/configurations.json").read_text())
    modes = {
        (row["case"][:8], described["configurations"][row["configuration"]]["mode"]["rados_offload_cache"])
        for row in rows
    }
    assert {cache for case, cache in modes if case == "repeated"} == {"true"}
    assert {cache for case, cache in modes if case != "repeated"} == {"false"}
    assert_nothing_runs(tmp_path)
    assert list(tmp_path.glob("ceph-*")) == []


@pytest.mark.long
def test_a_scale_model(cluster, tmp_path):
    if reason := ModelSite.why_not(3):
        pytest.skip(reason)
    quick = [argument if argument != "skyhook" else "skyhook-model" for argument in QUICK]
    result = run_cli(*quick, "--work-dir", str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    rows = rows_of(tmp_path, "skyhook-model")
    assert not [row for row in rows if row["error"]]
    assert {row["case"] for row in rows} == {
        f"{prefix}1gx3-q{number}" for prefix in ("", "repeated_") for number in ("01", "06")
    }
    # The client is on another host than the OSDs: all that it reads goes through its link.
    ranges = [row for row in rows if row["mode"] == "ranges"]
    assert all(float(row["sent_bytes"]) > float(row["moved_bytes"]) > 0 for row in ranges)
    assert "It is a model" in (tmp_path / "results/skyhook-model/report.md").read_text()
    assert_nothing_runs(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_what_ends_it_takes_its_cluster_down(cluster, tmp_path, number, code):
    """The signal is sent to the command only, during a query."""
    command = [str(Path(sys.executable).with_name("rawduck")), *QUICK, "--work-dir", str(tmp_path)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        # A shell's background job ignores interrupts, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        limit = time.monotonic() + STARTED_SECONDS
        while not (started := has_measured(tmp_path)) and time.monotonic() < limit:
            time.sleep(0.1)
        assert started
        assert len(processes_of(tmp_path)) > 3
        process.send_signal(number)
        assert process.wait(ENDED_SECONDS) == code
    finally:
        process.kill()
    assert_nothing_runs(tmp_path)
    assert list(tmp_path.glob("ceph-*")) == []


def has_measured(folder: Path) -> bool:
    """Whether the benchmark has written its first measurement."""
    return (folder / "results/skyhook/results.csv").exists() and rows_of(folder) != []


def test_on_a_given_cluster(cluster, con, tmp_path):
    half = run_cli(*QUICK, "--work-dir", str(tmp_path), "--ceph-conf", str(cluster.conf))
    assert half.returncode == 2
    assert "--ceph-pool" in half.stderr
    missing = run_cli(
        *QUICK, "--work-dir", str(tmp_path), "--ceph-conf", str(cluster.conf), "--ceph-pool", "no"
    )
    assert missing.returncode == 2
    assert "no pool of this name" in missing.stderr
