"""`rawduck bench` on a controller that rawduck drives itself: what needs a device of the kernel is left out,
with the reason, the rest is there, and the answers are stock DuckDB's. In the guest a time says nothing.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

from bench_on_nvme import disk_of_stock
from rawduck.commands.bench import bench

EXPERIMENTS = ("micro", "paper-strategies", "scan")
SCALE = 0.01
#: A few of each: a start of DuckDB takes seconds here.
MODES = {
    "micro": {"stock", "vfio-thread", "vfio-polling"},
    "paper-strategies": {"stock", "sync", "thread", "volume"},
    "scan": {"stock", "volume"},
}
CASES = {
    "micro": {"block", "run", "customer", "random-1", "random-16", "commit"},
    "paper-strategies": {f"sf{SCALE:g}"},
    "scan": {"narrow", "wide", "filter"},
}
LEFT_OUT = {"micro": ("fio",), "paper-strategies": (), "scan": ("bare device",)}


def check_all(check: Callable, target: str, stock_device: str, work_dir: str) -> None:
    """What lies on both devices is lost; `stock_device` becomes the disk of stock DuckDB."""
    out = Path("/tmp/results-of-driver")
    with disk_of_stock(stock_device) as stock_dir:
        what = f"bench {', '.join(EXPERIMENTS)} on {target}"
        check(what, lambda: measure(target, stock_dir, work_dir, out))
    for name in EXPERIMENTS:
        check(f"bench {name} on {target}: every row is there", lambda name=name: complete(out / name, name))
        check(
            f"bench {name} on {target}: answers were compared", lambda name=name: compared(out / name, name)
        )
        check(f"bench {name} on {target}: the report", lambda name=name: reported(out / name, name, target))
    check(f"bench micro on {target}: DuckDB's blocks are not copied", lambda: counted(out / "micro"))


def measure(target: str, stock_dir: Path, work_dir: str, out: Path) -> None:
    bench(
        list(EXPERIMENTS),
        target=target,
        stock_dir=stock_dir,
        work_dir=Path(work_dir),
        out=out,
        quick=True,
        scale=SCALE,
        runs=1,
        modes=",".join(sorted(set().union(*MODES.values()))),
        format=True,
        force=True,
        yes=True,
    )


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def complete(folder: Path, name: str) -> None:
    rows = rows_of(folder)
    assert not [row for row in rows if row["error"]]
    for case in CASES[name]:
        wanted = MODES[name] - ({"stock"} if case.startswith("random") else set())
        there = {row["mode"] for row in rows if row["case"] == case}
        assert there == wanted, (case, there)


def compared(folder: Path, name: str) -> None:
    """With what the first mode said. A mode that says something else has no row without an error."""
    answers = json.loads((folder / "answers.json").read_text())
    assert {key.split()[0] for key in answers} == CASES[name], answers.keys()
    assert all(answer["rows"] for answer in answers.values())


def reported(folder: Path, name: str, target: str) -> None:
    text = (folder / "report.md").read_text()
    assert "## Failed runs" not in text
    assert f"PCI function {target.removeprefix('vfio:')}" in text
    for what in LEFT_OUT[name]:
        assert f"| {what} | " in text, (what, text)
    if name == "micro":
        assert "vfio, thread" in text
    if name == "scan":
        assert "| rawduck, volume | " in text.partition("## Cost per GiB")[2].partition("##")[0], text


def counted(folder: Path) -> None:
    for row in rows_of(folder):
        if not row["mode"].startswith("vfio"):
            continue
        copied = float(row["bounce_read_bytes"])
        assert float(row["commands"]) >= 1, row
        # Random reads are into memory that is not rawduck's.
        assert copied == (float(row["bytes"]) if row["case"].startswith("random") else 0), row
