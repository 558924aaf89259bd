"""What the numbers were measured on. Only what stays the same between two runs, so that it can be part of a
configuration."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

import duckdb

import rawduck
from rawduck import disks, paths

_QUEUE_FACTS = (
    "rotational",
    "write_cache",
    "scheduler",
    "dma_alignment",
    "max_hw_sectors_kb",
    "read_ahead_kb",
)


def describe(target: str, stock_dir: Path) -> dict[str, Any]:
    """Processor, memory, kernel, disks and versions, as plain data."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**2,
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "root": os.geteuid() == 0,
        "target": target,
        "target_disk": _target_disk(target),
        "stock_disk": _disk(stock_dir),
        "stock_file_system": _file_system(stock_dir),
        "python": platform.python_version(),
        "duckdb": duckdb.__version__,
        "rawduck": rawduck.__version__,
        "rawduck_build": _extension_digest(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _target_disk(target: str) -> dict[str, Any]:
    if paths.is_function(target):
        return {
            "name": f"PCI function {target.removeprefix(paths.VFIO_PREFIX)}, which the kernel does not drive"
        }
    return _disk(_existing(disks.block_device(target)))


def _existing(target: str) -> Path:
    """A target, or the folder of one that is still to be made."""
    path = Path(target)
    return path if path.exists() else path.parent


def _disk(path: Path) -> dict[str, Any]:
    """The disk below a file or device, as sysfs describes it."""
    name = disks.disk_of(path)
    folder = Path("/sys/block") / name
    if not name or not folder.exists():
        return {"name": name or "none"}
    facts = {fact: _read(folder / "queue" / fact) for fact in _QUEUE_FACTS}
    size = int(_read(folder / "size") or 0) * 512
    return {"name": name, "model": _read(folder / "device/model"), "bytes": size, **facts}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _file_system(folder: Path) -> str:
    """The type of the file system that a folder lies on: that of the longest mount point above it."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, mounted_kind, *_ = line.split()
        if folder.is_relative_to(mount_point) and len(mount_point) >= len(best):
            best, kind = mount_point, mounted_kind
    return kind


def _extension_digest() -> str:
    """Tells builds of one version apart: a hash of the shared objects that are measured."""
    folder = rawduck.extension_path().parent
    parts = sorted([*folder.glob("*.so"), rawduck.extension_path()])
    return hashlib.sha256(b"".join(path.read_bytes() for path in parts)).hexdigest()[:12]


def rows(machine: dict[str, Any]) -> list[tuple[str, str]]:
    """The description as names and values for a report."""
    target, stock = machine["target_disk"], machine["stock_disk"]
    cores = f"{machine['cores']}, {machine['usable_cores']} usable"
    return [
        ("processor", f"{machine['cpu']} ({cores} cores)"),
        ("memory", f"{machine['memory_mib'] / 1024:.1f} GiB"),
        ("touched before each run", f"{machine['warmed_mib']:,} MiB"),
        ("system", f"{machine['system']}, Linux {machine['kernel']}, {machine['architecture']}"),
        ("target", f"{Path(machine['target']).name} on {_disk_text(target)}"),
        ("stock's files", f"{machine['stock_file_system']} on {_disk_text(stock)}"),
        ("DuckDB", machine["duckdb"]),
        ("rawduck", f"{machine['rawduck']}, build {machine['rawduck_build']}"),
        ("as root", "yes" if machine["root"] else "no"),
    ]


def _disk_text(disk: dict[str, Any]) -> str:
    if "bytes" not in disk:
        return disk["name"]
    model = f" ({disk['model']})" if disk["model"] else ""
    return (
        f"{disk['name']}{model}, {disk['bytes'] / 1e9:.0f} GB, {disk['write_cache'] or 'unknown write cache'}"
    )
